/* SPDX-License-Identifier: Apache-2.0 */
/* What sbcast and srun --bcast leave on a node, outside the jail: it ends with the user's last job there. */
#ifndef JAIL_BCAST_CLEANUP_H
#define JAIL_BCAST_CLEANUP_H

#include <sys/types.h>

#include "native/base/error.h"

/* Removes what `uid` owns in `directory`; nothing else is looked at, and no link is followed. A missing directory is
 * nothing to do. Returns 0 or -1. */
int jail_bcast_sweep(const char *directory, uid_t uid, struct jail_error *err);

#endif
