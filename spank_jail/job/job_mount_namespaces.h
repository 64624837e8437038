/* SPDX-License-Identifier: Apache-2.0 */
/* The three mount namespaces of a job on a node, which are made once and used by all its steps.
 *
 *   home     a copy of the node's own, for slurmstepd: the job's /tmp lies over the node's, because PMIx uses
 *            its directory there from inside and outside the window
 *   tasks    pivoted into the jail: each step takes a copy for its tasks
 *   window   pivoted into the window (native/mount/chroot_window.h): slurmstepd visits it by chroot
 *
 * `window` has no /proc. At level pid `tasks` has none, either: a step adds one of its own. They are pinned beside
 * the job's mounts (job_mounts.h), with a record (tree_record.h) of what they were made from. Making them takes about
 * 1 ms, finding them 0.05 ms.
 */
#ifndef JAIL_JOB_MOUNT_NAMESPACES_H
#define JAIL_JOB_MOUNT_NAMESPACES_H

#include <stdbool.h>

#include "native/base/error.h"
#include "native/mount/isolation_level.h"
#include "native/mount/plan.h"
#include "native/mount/chroot_window.h"
#include "tree_record.h"
#include "spool.h"

struct jail_namespaces {
	int home, tasks, window; /* namespaces */
	int mounts;              /* how many `tasks` has; -1 where the kernel cannot say */
};

#define JAIL_NAMESPACES_NONE { -1, -1, -1, -1 }

struct jail_namespaces_request {
	int holder;       /* the namespace they are to be pinned in: slurmd's */
	const char *root; /* the jail's, on the node */
	const struct jail_plan *plan;
	enum jail_level level;
	bool readonly;    /* the volume is, for the tasks */
	bool nosuid;      /* everything is, for the tasks */
	int pids;         /* the PID namespace whose processes the tasks are to see, or -1: their own */
	int *mounts;      /* the job's, as for jail_tree_apply; used up */
	const struct jail_spool *spool;
	int spool_view;   /* unattached */
	const struct jail_window_parts *parts;
	void (*notice)(void *context, const char *text);
};

/* Makes the three. The thread, which has left its namespace (jail_namespace_leave), ends up in any of
 * them. On -1 nothing is open. */
int jail_namespaces_make(const struct jail_namespaces_request *request, struct jail_namespaces *namespaces,
			 struct jail_error *err);

/* Finds those of an earlier step, when the record, which was begun, holds. */
bool jail_namespaces_find(int directory, struct jail_record *record, struct jail_namespaces *namespaces);

/* Pins them in the job's directory, with the record, in place of any before. Returns 0 or -1. */
int jail_namespaces_keep(int directory, const struct jail_record *record, const struct jail_namespaces *namespaces,
			 struct jail_error *err);

/* Forgets the pinned ones: they are no longer whole. */
void jail_namespaces_drop(int directory);

void jail_namespaces_close(struct jail_namespaces *namespaces);

#endif
