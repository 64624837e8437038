/* SPDX-License-Identifier: Apache-2.0 */
/* The part of slurmd's spool directory that a job's tasks see in the jail.
 *
 * At the spool's path the jail has a small tmpfs with, read-only, the configuration cache, the job's directory (the
 * batch script is executed from there) and the step's PMIx directory. Slurm makes the last only inside the window, so
 * it is mounted later, in the tasks' namespace. slurmstepd's control sockets are never in there.
 */
#ifndef JAIL_SPOOL_H
#define JAIL_SPOOL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "native/base/error.h"

struct jail_spool {
	char path[PATH_MAX]; /* of the node, and in the jail */
	char script[32];     /* "job00042": the job's directory in it */
	char pmix[48];       /* "pmix.JOB.STEP", or "" for a batch script, which is no MPI task */
};

/* Finds the spool's path: `argument` if not NULL, else SlurmdSpoolDir of the configuration slurmstepd
 * holds; %h and %n are replaced (`node` may be NULL, then %n is an error). Returns 0 or -1. */
int jail_spool_path(const char *argument, const char *node, char path[PATH_MAX], struct jail_error *err);

/* Makes the view of the job's steps, in the job's directory of the holder (job_directory.h), if it is not
 * there, and in it a place for the step's PMIx directory. Returns 0 or -1. */
int jail_spool_prepare(struct jail_spool *spool, int directory, uint32_t job, uint32_t step, struct jail_error *err);

/* The view, sealed and unattached, for jail_spool_attach; or -1. */
int jail_spool_take_view(int directory, struct jail_error *err);

/* Mounts the view with the configuration cache into the attached tree `root`. Returns 0 or -1. */
int jail_spool_attach(const struct jail_spool *spool, int view, int root, struct jail_error *err);

/* The job's directory, unattached, for jail_spool_show_script; or -1, with ENOENT where this node has none. From here on
 * it is root's, and its user passes through it. */
int jail_spool_take_script(const struct jail_spool *spool, struct jail_error *err);

/* Mounts it in the tasks' namespace, in which the thread is. Returns 0 or -1. */
int jail_spool_show_script(const struct jail_spool *spool, int script, struct jail_error *err);

/* In the window: whether Slurm has made a PMIx directory for the step. */
bool jail_spool_has_pmix(const struct jail_spool *spool);

/* Mounts the step's PMIx directory, if Slurm has made one by now in the spool as the mount namespace `window` has it, in
 * the tasks' `*namespace`; in a copy that replaces it where it is `shared`. The thread comes back with a filesystem context of
 * its own. Returns 0 or -1. */
int jail_spool_show_pmix(const struct jail_spool *spool, int window, int *namespace, bool shared, struct jail_error *err);

#endif
