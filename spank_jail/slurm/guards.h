/* SPDX-License-Identifier: Apache-2.0 */
/* Changes how slurmd and slurmstepd treat what comes from users, whom they would otherwise trust (spank_jail/guards).
 * A guard that cannot be put in place is logged: a node that lacks one is a node all the same. */
#ifndef JAIL_GUARDS_H
#define JAIL_GUARDS_H

#include <sys/types.h>

/* In slurmd. `bcast` is where sbcast may write. */
void jail_guard_slurmd(const char *bcast);

/* In slurmstepd: what keeps a step of `user` from ending. */
void jail_guard_ending(uid_t user);

#endif
