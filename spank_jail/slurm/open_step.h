/* SPDX-License-Identifier: Apache-2.0 */
/* The files and namespaces that a step needs until it is in the jail. enter_step.c enters with them. */
#ifndef JAIL_OPEN_STEP_H
#define JAIL_OPEN_STEP_H

#include <limits.h>
#include <stdbool.h>

#include "native/base/error.h"
#include "native/jail/pid_namespace.h"
#include "native/mount/plan.h"
#include "native/mount/chroot_window.h"
#include "spank_jail/job/tree_record.h"
#include "spank_jail/job/job_mount_namespaces.h"
#include "step_state.h"

struct jail_opening {
	struct jail_step *step;
	int plan, root;   /* opened; the record says whether they are those once found trustworthy */
	int directory;    /* the job's, locked */
	struct jail_record record;
	struct jail_namespaces namespaces;
	bool keep;        /* the namespaces may serve later steps */
	struct jail_plan lines; /* at level pid */
	struct jail_pid_view processes; /* those that the step adds to the tasks' namespace, */
	int init;         /* and the program that does, or -1 */
	int script;       /* the job's directory in the spool, for a batch script; else -1 */
	struct jail_window_parts parts;
	char sealed[PATH_MAX]; /* conf-cache in the spool */
};

/* The node's own answers for what the C library reads: never all of /etc, the munge key is there. */
extern const char *const jail_node_files[];

/* Finds the job's namespaces, or makes them, and keeps them for later steps; step->found says which. In
 * slurmd's namespace, with the job's directory locked. Returns 0 or -1. */
int jail_opening_get_namespaces(struct jail_opening *opening, struct jail_error *err);

/* Makes them, whatever there is. Returns 0 or -1. */
int jail_opening_make_namespaces(struct jail_opening *opening, struct jail_error *err);

/* Whether the jail's root, which is open, holds a system at all. Returns 0 or -1. */
int jail_opening_check_root(int root, const char *path, struct jail_error *err);

void jail_opening_close(struct jail_opening *opening);

#endif
