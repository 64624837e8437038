/* SPDX-License-Identifier: Apache-2.0 */
/* Confines the processes that slurmd forks to open a file or socket for a user: for sbcast, `srun --bcast`, and
 * connections to a step's sockets.
 *
 * Such a process becomes the user, opens a file outside the jail, and hands the descriptor to slurmd. For sbcast
 * slurmd then gives the file to the user and sets its mode, as root: a device that everybody may write would become
 * his.
 */
#ifndef JAIL_CONFINED_FORKS_H
#define JAIL_CONFINED_FORKS_H

#include "native/base/error.h"

/* In slurmd. Such a child can write nothing of the node but what lies in `bcast`, and opens no device; that holds for root's, too.
 * Of Unix sockets a user's connects to the user's own alone.
 * Returns 0 or -1. */
int jail_confined_forks_guard(const char *bcast, struct jail_error *err);

#endif
