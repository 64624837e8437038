/* SPDX-License-Identifier: Apache-2.0 */
/* Checks which open descriptors a task takes into the jail, and closes those that would lead outside. */
#ifndef JAIL_TASK_DESCRIPTORS_H
#define JAIL_TASK_DESCRIPTORS_H

#include "native/base/error.h"

/* Refuses a standard stream (0, 1, 2) that is a directory: openat(2) with ".." would lead out of where
 * it was opened. Returns 0 or -1. */
int jail_task_descriptors_check(struct jail_error *err);

/* In the window, once the job's files are open: refuses one that lies in slurmd's spool, mounted at `spool`. A job's script is its
 * user's there for a moment, and what he writes into it fills the node's memory. Returns 0 or -1. */
int jail_task_descriptors_avoid(const char *spool, struct jail_error *err);

/* Closes every directory above 2, and marks every other descriptor close-on-exec, but for what Slurm means the task to have: an end of an
 * unnamed Unix socket pair that is not marked yet (PMI-1 and PMI-2 hand one over as PMI_FD).
 * Returns 0 or -1. */
int jail_task_descriptors_seal(struct jail_error *err);

#endif
