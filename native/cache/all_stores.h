/* SPDX-License-Identifier: Apache-2.0 */
/* All stores of the image cache that a process reads, and which one it writes to. */
#ifndef ENROOT_CACHE_ALL_STORES_H
#define ENROOT_CACHE_ALL_STORES_H

#include <stdatomic.h>

#include "cache.h"
#include "store.h"

#define MOST_TRUSTED 16
/* Stores of strangers that are asked for a layer. */
#define MOST_STRANGERS 256

struct cache {
	const struct settings *settings;
	/* Those that are there, in the order in which they are asked. */
	struct store stores[2 + MOST_TRUSTED];
	unsigned n;
	const struct store *personal, *shared; /* one's own, or NULL */
	int users, locks;       /* of the administrator's directory, or -1 */
	char *root;             /* its path */
	bool trusted_by_others; /* root, or one of ENROOT_SHARED_CACHE_TRUST: others run what lies in our shared store */
	atomic_bool skip_strangers;  /* a layer of another user was damaged: no more of them */
	mode_t mask;            /* the umask */
};

/* Where something new is kept: with all users where it may be, else with one's own; NULL: nowhere. */
const struct store *cache_writable(const struct cache *cache, bool anonymous);

#endif
