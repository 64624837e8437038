/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds what slurmd makes of compressed blocks of files. guards.c calls it. */
#define _GNU_SOURCE
#include "expanded_blocks.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "imported_functions.h"

#define LOOK_EVERY_MS 20

static int (*expand)(const char *block, char *to, int size, int room);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jail_expanded_room room = { .bytes = JAIL_EXPANDED_IN_A_SECOND };

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

bool jail_expanded_take(struct jail_expanded_room *left, long bytes, long now)
{
	const long passed = now - left->at, per_ms = JAIL_EXPANDED_IN_A_SECOND / 1000;

	left->bytes = passed >= 2000 ? JAIL_EXPANDED_IN_A_SECOND : left->bytes + passed * per_ms;
	left->bytes = left->bytes < JAIL_EXPANDED_IN_A_SECOND ? left->bytes : JAIL_EXPANDED_IN_A_SECOND;
	left->at = now;
	if (left->bytes <= 0)
		return false;
	left->bytes -= bytes;
	return true;
}

/* In place of LZ4_decompress_safe in slurmd. What it makes is written to the file, and given back, soon after. */
static int expand_in_turn(const char *block, char *to, int size, int most)
{
	if (most < 0 || most > JAIL_EXPANDED_MOST)
		return -1;
	for (;;) {
		pthread_mutex_lock(&lock);
		bool taken = jail_expanded_take(&room, most, now_ms());
		pthread_mutex_unlock(&lock);
		if (taken)
			return expand(block, to, size, most);
		(void)poll(NULL, 0, LOOK_EVERY_MS);
	}
}

int jail_expanded_blocks_guard(struct jail_error *err)
{
	const struct link_map *slurmd = jail_imports_program();
	void *found = dlsym(RTLD_DEFAULT, "LZ4_decompress_safe");

	/* Slurm that was compiled without it refuses such blocks. */
	if (!slurmd || !found)
		return 0;
	memcpy(&expand, &found, sizeof(found));
	return jail_imports_replace(slurmd, "LZ4_decompress_safe", (void *)expand_in_turn, err) < 0 ? -1 : 0;
}
