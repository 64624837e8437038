/* SPDX-License-Identifier: Apache-2.0 */
/* An arena: memory for what is read from one file, all of which is released in one call. */
#ifndef JAIL_ARENA_H
#define JAIL_ARENA_H

#include <stddef.h>

/* Starts as { NULL }. */
struct jail_arena {
	struct jail_arena_block *blocks;
};

/* `size` zeroed bytes, aligned for any type; NULL when there is no memory. */
void *jail_arena_alloc(struct jail_arena *arena, size_t size);

/* A terminated copy of `length` bytes, or NULL. */
char *jail_arena_copy(struct jail_arena *arena, const char *text, size_t length);

void jail_arena_free(struct jail_arena *arena);

#endif
