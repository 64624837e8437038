/* SPDX-License-Identifier: Apache-2.0 */
/* Lists what is in the stores of the cache, and deletes what was used least recently when there is no room. */
#ifndef ENROOT_CACHE_TRIM_H
#define ENROOT_CACHE_TRIM_H

#include "all_stores.h"

struct trim_item {
	const struct store *store;
	const char *kind; /* "images" or "blobs" */
	char key[65];
	long long bytes;  /* on the disk */
	time_t used;      /* last time by anybody, or when it was made */
	bool in_use;
};

struct trim_list {
	struct trim_item *items;
	size_t n, capacity;
	long long bytes;
};

/* Adds all that is in a store. `users`: the directory of all shared stores, whose owners' marks count too, or -1. */
void trim_list_add(struct trim_list *list, const struct store *store, int users);
void trim_list_free(struct trim_list *list);

/* Removes what was used least recently until `list` has at most `most` bytes, and what was not used since `since`. What is in
 * use stays unless `force`. Returns the bytes that were freed. */
long long trim_down(struct trim_list *list, long long most, time_t since, bool force);

/* Trims an own store until `bytes` more fit into its quota. -1 with err->message for people: they cannot. */
int trim_make_room(const struct cache *cache, const struct store *store, long long bytes, struct jail_error *err);

#define scoped_trim_list __attribute__((cleanup(trim_list_free))) struct trim_list

#endif
