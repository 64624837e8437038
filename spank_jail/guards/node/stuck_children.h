/* SPDX-License-Identifier: Apache-2.0 */
/* Ends, from a thread in slurmd, children of slurmd that wait for ever.
 *
 * For sbcast and X11, slurmd forks a child that becomes the user and opens one file or socket, and one of slurmd's
 * 256 threads waits for it. A user who names a FIFO would keep both (Slurm 22.05 and 24.11). A slurmstepd of 26.05
 * whose launch failed sometimes waits for threads of its own that have ended.
 */
#ifndef JAIL_STUCK_CHILDREN_H
#define JAIL_STUCK_CHILDREN_H

#include "native/base/error.h"

/* In slurmd. Returns 0 or -1. */
int jail_stuck_children_watch(struct jail_error *err);

#endif
