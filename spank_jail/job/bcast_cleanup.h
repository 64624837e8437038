/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the files that sbcast and srun --bcast left on a node, outside the jail, when the user's
 * last job there ends. */
#ifndef JAIL_BCAST_CLEANUP_H
#define JAIL_BCAST_CLEANUP_H

#include <sys/types.h>

#include "native/base/error.h"

/* Removes what `uid` owns in `directory`; nothing else is looked at, and no link is followed. A missing directory is
 * nothing to do. Returns 0 or -1. */
int jail_bcast_sweep(const char *directory, uid_t uid, struct jail_error *err);

#endif
