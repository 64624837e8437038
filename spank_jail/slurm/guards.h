/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm's programs do otherwise because users are not trusted. What cannot be had is logged: a node that lacks it is a node
 * all the same. */
#ifndef JAIL_GUARDS_H
#define JAIL_GUARDS_H

#include <sys/types.h>

/* In slurmd. `bcast` is where sbcast may write. */
void jail_guard_slurmd(const char *bcast);

/* In slurmstepd: what keeps a step of `user` from ending. */
void jail_guard_ending(uid_t user);

#endif
