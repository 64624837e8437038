/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the errands of slurmd that wait for a user, and slurmstepds that wait for themselves.
 *
 * For sbcast and for X11, slurmd forks a child that becomes the user, opens one file or socket and ends, and a thread of
 * slurmd waits for it. A user who names a FIFO keeps both for ever, and slurmd has 256 threads (by reading Slurm 22.05
 * and 24.11). So a thread of ours ends such children as take longer than anything honest does.
 *
 * A slurmstepd of 26.05 whose launch failed waits now and then for threads of its own that have ended: one in five of the launches
 * with an odd number at one place. It is nobody's step, and what a user can have of them is bounded by the node's processes.
 */
#ifndef JAIL_STUCK_CHILDREN_H
#define JAIL_STUCK_CHILDREN_H

#include "native/base/error.h"

/* In slurmd. Returns 0 or -1. */
int jail_stuck_children_watch(struct jail_error *err);

#endif
