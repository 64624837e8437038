/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory for blocks of files that slurmd decompresses for sbcast. guards.c calls it. */
#define _GNU_SOURCE
#include "expanded_blocks.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "native/base/clock.h"
#include "spank_jail/guards/common/imported_functions.h"

#define ROOM_LOOK_EVERY_MS 20

static int (*expand)(const char *block, char *to, int size, int room);
static pthread_mutex_t room_lock = PTHREAD_MUTEX_INITIALIZER;
static struct jail_expanded_room room = { .bytes = JAIL_EXPANDED_IN_A_SECOND };

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
		pthread_mutex_lock(&room_lock);
		bool taken = jail_expanded_take(&room, most, clock_ms());
		pthread_mutex_unlock(&room_lock);
		if (taken)
			return expand(block, to, size, most);
		(void)poll(NULL, 0, ROOM_LOOK_EVERY_MS);
	}
}

static int guard(const struct link_map *map, struct jail_error *err)
{
	void *lz4 = dlopen("liblz4.so.1", RTLD_LAZY | RTLD_NOLOAD), *found = lz4 ? dlsym(lz4, "LZ4_decompress_safe") : NULL;

	if (!found)
		return 1;
	memcpy(&expand, &found, sizeof(found));
	return jail_imports_replace(map, "LZ4_decompress_safe", (void *)expand_in_turn, err);
}

/* Slurm 26.05: a plugin knows LZ4, which slurmd loads after this one. */
static int (*expand_message)(void *message);
static bool is_guarded;

static void guard_plugin(void)
{
	const struct link_map *plugin = jail_imports_library("compress_lz4");
	struct jail_error err;

	is_guarded = !plugin || !guard(plugin, &err);
}

/* In place of bcast_decompress_data in slurmd, which then says that it cannot. */
static int expand_message_in_turn(void *message)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, guard_plugin);
	return is_guarded ? expand_message(message) : -1;
}

int jail_expanded_blocks_guard(struct jail_error *err)
{
	const struct link_map *slurmd = jail_imports_program();
	void *found = dlsym(RTLD_DEFAULT, "bcast_decompress_data");

	if (!slurmd)
		return 0;
	memcpy(&expand_message, &found, sizeof(found));
	int missing = found ? jail_imports_replace(slurmd, "bcast_decompress_data", (void *)expand_message_in_turn, err) : 1;
	/* Earlier ones have it in slurmd. Slurm that was compiled without it refuses such blocks. */
	return (missing > 0 ? guard(slurmd, err) : missing) < 0 ? -1 : 0;
}
