/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of `enroot cache` (cache_*.c) share. */
#ifndef ENROOT_CACHE_COMMAND_H
#define ENROOT_CACHE_COMMAND_H

#include "native/cache/trim.h"

/* More users than that in one directory are not looked at by one command. */
#define MOST_OWNERS 4096

struct cache_choice {
	bool all, force, repair, json, all_users;
	long long to_size; /* bytes, or -1 */
	long long older;   /* seconds, or -1 */
};

/* All that a command looks at. */
struct cache_view {
	struct cache *cache;
	struct trim_list list;
	struct store *others;
	unsigned n_others;
	bool all_users;
};

/* Fills the list. False: there is no administrator's directory with other users. */
bool cache_visible(struct cache_view *view, bool all_users);
bool cache_view_add(void *context, struct store *store);
void cache_view_free(struct cache_view *view);

/* Each returns the exit status. */
int cache_ls(const struct settings *settings, const struct cache_choice *choice);
int cache_prune(const struct settings *settings, const struct cache_choice *choice);
int cache_verify(const struct settings *settings, const struct cache_choice *choice);

#define scoped_view __attribute__((cleanup(cache_view_free))) struct cache_view

#endif
