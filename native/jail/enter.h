/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the calling process into the jail for good, in one call. Steps of Slurm are entered in stages by
 * spank_jail/slurm instead. */
#ifndef JAIL_ENTER_H
#define JAIL_ENTER_H

#include <stdbool.h>

#include "native/cdi/cdi.h"
#include "native/base/error.h"
#include "native/mount/isolation_level.h"
#include "native/mount/plan.h"

struct jail_entry_request {
	const char *root;  /* directory that becomes "/" */
	const char *plan;  /* path of the mount plan */
	bool trust_owners; /* leave out the check that root alone can write root and plan; tests only */
	void (*notice)(void *context, const char *text); /* hears of entries left out; may be NULL */
	void *context;
	enum jail_level level; /* how /proc and /sys are masked; the process itself: jail_confine */
	/* Takes the variables of the plan's cdi lines, to be set and released by the caller (jail_environment_free);
	 * NULL: nobody asks. */
	struct jail_environment *environment;
	/* The PID namespace that the node's jobs and sessions share (jail_pid_shared): what the thread forks is in it. 0 or -1: none.
	 * Not looked at from level pid up where `init` is given. */
	int pids;
	bool nosuid; /* no set-user-ID program and no file capability counts inside */
	const char *init;  /* at level pid: program that is init of the PID namespace; NULL: there is none */
};

/* Moves the calling thread into the jail: a mount namespace of its own, the plan applied to the tree,
 * pivot_root. At level pid, what the thread forks from now on, and not itself, is in a PID namespace, which
 * ends with the thread. The working directory is "/" afterwards; there is no way back. Entries that are
 * x-jail.per-job last as long as the namespace. On -1 the thread may be in a namespace of its own with
 * mounts half made, still at the old root: the only thing to do is to end the process. */
int jail_enter(const struct jail_entry_request *request, struct jail_error *err);

#endif
