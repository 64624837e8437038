/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory for blocks of files that slurmd decompresses (sbcast --compress).
 *
 * A block of eight megabytes can become two gigabytes in slurmd's memory: the message says how long it was. And users
 * send many at a time.
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
