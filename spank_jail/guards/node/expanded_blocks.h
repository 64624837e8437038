/* SPDX-License-Identifier: Apache-2.0 */
/* What slurmd makes of the compressed blocks of files that users bring (sbcast --compress).
 *
 * A block of eight megabytes, of which a message says how long it was, becomes two gigabytes in slurmd's memory; and users send many at
 * a time.
 */
#ifndef JAIL_EXPANDED_BLOCKS_H
#define JAIL_EXPANDED_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "native/base/error.h"

/* Bytes of one block, where sbcast makes 80 MiB at most unless it is told --size; and of all in a second. */
#define JAIL_EXPANDED_MOST (256L << 20)
#define JAIL_EXPANDED_IN_A_SECOND (512L << 20)

/* Bytes that may be expanded now, at `at`, in milliseconds; below 0 after more than there were. */
struct jail_expanded_room {
	long bytes, at;
};

/* Takes `bytes` of it, if there is any at `now`. It is full at first: {JAIL_EXPANDED_IN_A_SECOND, now}. */
bool jail_expanded_take(struct jail_expanded_room *room, long bytes, long now);

/* In slurmd, where it knows of compression. Returns 0 or -1. */
int jail_expanded_blocks_guard(struct jail_error *err);

#endif
