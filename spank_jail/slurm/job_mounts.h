/* Mounts that a job's steps share (x-jail.per-job), such as its /tmp.
 *
 * The mount table of slurmd's own namespace holds them, at HOLDER/JOB/TARGET: the first step makes the
 * mount, each step takes a clone, and the job's epilog takes them away. Nothing of the job has to stay
 * alive between steps, slurmd may restart, and a node that goes down takes them with it.
 */
#ifndef JAIL_JOB_MOUNTS_H
#define JAIL_JOB_MOUNTS_H

#include <stdint.h>

#include "../core/error.h"
#include "../core/plan.h"

#define JAIL_HOLDER "/run/cellblock/jail"

struct jail_job_mounts {
	int *mounts; /* one a plan entry: an unattached clone, or -1 */
	size_t n;
};

/* Takes a clone of every per-job mount of the plan, making those that are not there. To be called in
 * slurmd's own mount namespace. On -1 nothing is left open. */
int jail_job_mounts_take(const struct jail_plan *plan, uint32_t job, struct jail_job_mounts *mounts,
			 struct jail_error *err);

/* Takes the holder out of the calling thread's (private) namespace, so that a step pins no mount of
 * another job. No holder: nothing to do. */
int jail_job_mounts_hide(uint32_t job, struct jail_error *err);

/* Gives out the clone for an entry; the caller owns it then. */
int jail_job_mounts_give(struct jail_job_mounts *mounts, size_t index);

void jail_job_mounts_close(struct jail_job_mounts *mounts);

/* Ends all mounts of the job on this node (epilog). None: nothing to do. */
int jail_job_mounts_release(uint32_t job, struct jail_error *err);

#endif
