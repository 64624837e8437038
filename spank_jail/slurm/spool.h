/* What a task may see of slurmd's spool directory.
 *
 * The jail has a small tmpfs at the spool's own path with, read-only, the configuration cache, the job's
 * directory (the batch script is executed from there) and the PMIx directory of the step: the last is
 * made by Slurm only inside the window, so it is mounted later, into the namespace of slurmstepd, from
 * where it propagates to the one of the tasks. slurmstepd's control sockets are never in there.
 */
#ifndef JAIL_SPOOL_H
#define JAIL_SPOOL_H

#include <limits.h>
#include <stdint.h>

#include "../core/error.h"

struct jail_spool {
	char path[PATH_MAX]; /* of the node, and in the jail */
	char pmix[48];       /* "pmix.JOB.STEP" */
	int view;            /* the tmpfs, attached in slurmstepd's namespace; -1: not made */
	int pmix_target;     /* its directory for `pmix` */
};

/* Finds the spool's path: `argument` if not NULL, else SlurmdSpoolDir of the configuration slurmstepd
 * holds; %h and %n are replaced (`node` may be NULL, then %n is an error). Returns 0 or -1. */
int jail_spool_path(const char *argument, const char *node, char path[PATH_MAX], struct jail_error *err);

/* Mounts the view into the attached tree `root`. `spool->path` is set by the caller. */
int jail_spool_attach(struct jail_spool *spool, int root, uint32_t job, uint32_t step, struct jail_error *err);

/* In the copy of the namespace that becomes the tasks', with the tree's root as working directory: the
 * view becomes read-only there, and what is mounted in it there stays there. */
int jail_spool_seal(struct jail_spool *spool, struct jail_error *err);

/* Shows the step's PMIx directory, if Slurm has made one by now. */
int jail_spool_show_pmix(struct jail_spool *spool, struct jail_error *err);

void jail_spool_close(struct jail_spool *spool);

#endif
