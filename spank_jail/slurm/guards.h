/* SPDX-License-Identifier: Apache-2.0 */
/* Installs the guards of slurmd and slurmstepd from spank_jail/guards. One that cannot be installed is logged, and
 * the node goes on without it. */
#ifndef JAIL_GUARDS_H
#define JAIL_GUARDS_H

#include <sys/types.h>

/* In slurmd. `bcast` is where sbcast may write. */
void jail_guard_slurmd(const char *bcast);

/* In slurmstepd: what keeps a step of `user` from ending. */
void jail_guard_ending(uid_t user);

#endif
