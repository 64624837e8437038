/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts that all steps of a job on a node share: those marked x-jail.per-job in the mount plan, such as its
 * /tmp.
 *
 * They lie in the job's directory (job_directory.h), at HOLDER/JOB/TARGET: the first step makes the mount, each step
 * takes a clone, and the job's epilog removes it. All functions must be called in slurmd's own mount namespace.
 */
#ifndef JAIL_JOB_MOUNTS_H
#define JAIL_JOB_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "native/base/error.h"
#include "native/mount/plan.h"
#include "job_namespaces.h"

/* One mount for each plan entry, for jail_tree_apply: a clone of the per-job mount, which is made if it
 * is not there, or -1 for other entries. NULL on failure, with nothing left open. */
int *jail_job_mounts_take(int directory, const struct jail_plan *plan, struct jail_error *err);

/* Closes what jail_tree_apply has not used. `mounts` may be NULL. */
void jail_job_mounts_close(int *mounts, const struct jail_plan *plan);

/* Ends all mounts in the job's directory, which is left empty. Returns 0 or -1. */
int jail_job_mounts_clear(int directory, struct jail_error *err);

/* Ends all mounts of the job on this node, and of its user what jail_user_leave ends (epilog). None: nothing to do. */
int jail_job_mounts_release(uint32_t job, jail_user_release *release, struct jail_error *err);

/* The same for every job that nobody is present of and that `is_over` confirms: what a node keeps of jobs
 * that had no epilog here. One that is busy is left for another time. Returns 0, or -1 and the last error. */
int jail_job_mounts_sweep(bool (*is_over)(uint32_t job), jail_user_release *release, struct jail_error *err);

#endif
