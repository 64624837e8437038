/* SPDX-License-Identifier: Apache-2.0 */
/* An arena: memory for what is read from one file, all of which is released in one call. yaml_tree.c and native/cdi
 * call it. */
#define _GNU_SOURCE
#include "arena.h"

#include <stdlib.h>
#include <string.h>

/* A CDI specification takes some tens of KiB: a handful of blocks. */
#define BLOCK_BYTES (32 * 1024 - 64)
#define ALIGNMENT _Alignof(max_align_t)

struct jail_arena_block {
	struct jail_arena_block *next;
	size_t used, size;
	_Alignas(max_align_t) char bytes[];
};

void *jail_arena_alloc(struct jail_arena *arena, size_t size)
{
	struct jail_arena_block *block = arena->blocks;

	if (size > (size_t)-1 / 2)
		return NULL;
	size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (!block || block->size - block->used < size) {
		size_t capacity = size > BLOCK_BYTES ? size : BLOCK_BYTES;
		block = calloc(1, sizeof(*block) + capacity);
		if (!block)
			return NULL;
		block->size = capacity;
		block->next = arena->blocks;
		arena->blocks = block;
	}
	void *found = block->bytes + block->used;
	block->used += size;
	return found;
}

char *jail_arena_copy(struct jail_arena *arena, const char *text, size_t length)
{
	char *copy = jail_arena_alloc(arena, length + 1);

	if (copy)
		memcpy(copy, text, length);
	return copy;
}

void jail_arena_free(struct jail_arena *arena)
{
	for (struct jail_arena_block *block = arena->blocks, *next; block; block = next) {
		next = block->next;
		free(block);
	}
	arena->blocks = NULL;
}
