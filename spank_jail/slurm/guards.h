/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm's programs do otherwise because users are not trusted. What cannot be had is logged: a node that lacks it is a node
 * all the same. */
#ifndef JAIL_GUARDS_H
#define JAIL_GUARDS_H

/* In slurmd. `bcast` is where sbcast may write. */
void jail_guard_slurmd(const char *bcast);

/* In slurmstepd: what keeps a step from ending. */
void jail_guard_ending(void);

#endif
