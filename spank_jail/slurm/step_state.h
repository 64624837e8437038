/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a step's jail in slurmstepd: plugin.c fills the first part, enter_step.c and open_step.c the rest. */
#ifndef JAIL_STEP_STATE_H
#define JAIL_STEP_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/mount/chroot_window.h"
#include "spank_jail/options/arguments.h"
#include "spank_jail/options/options.h"
#include "spank_jail/job/spool.h"

struct jail_step {
	struct jail_arguments arguments;
	struct jail_options options;
	uint32_t job, step;
	uid_t user;       /* who submitted it */
	const char *node; /* its name in Slurm, or NULL when not known */
	struct jail_spool spool;
	struct jail_window window;
	int namespace;    /* pivoted into the jail, for the tasks; -1 until it is built */
	bool shared;      /* and the job's own, not the step's copy */
	int pids;         /* PID namespace of the tasks: at level pid the step's, else what the node's jobs share, or -1 */
	int own_pids;     /* and slurmstepd's own */
	bool found;       /* the job's namespaces were there from an earlier step */
	int ipc;          /* IPC namespace of the job; -1 until it is known */
	int presence;     /* jail_job_stay, for as long as slurmstepd lives */
	int place;        /* jail_user_take_step, likewise; none of the extern step */
	void (*notice)(void *context, const char *text);
	void (*variable)(void *context, const char *text); /* hears of each NAME=VALUE for the tasks; may be NULL */
	void *context;
};

#endif
