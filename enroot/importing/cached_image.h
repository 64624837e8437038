/* SPDX-License-Identifier: Apache-2.0 */
/* An image as a squashfs file: from the cache, or made and kept there. */
#ifndef IMPORTING_OBTAIN_H
#define IMPORTING_OBTAIN_H

#include "native/cache/cache.h"
#include "import_source.h"

struct obtain {
	const char *uri, *architecture;
	const struct settings *settings;
	struct cache *cache;
	struct registry_documents documents, asking; /* asking: kept, and not looked for */
	struct origin origin;
	struct cache_image image;
	bool found; /* nothing had to be made */
	bool identified; /* a request that is over said who asks: the image is not for all users */
	bool anonymous;  /* all of it came without that: it may be for all */
	bool outgrown; /* the cache has no room for it, as was known before anything was fetched */
};

/* Opens the cache; asks nobody yet. `architecture` may be NULL: this machine's. Returns 0, or -1 after a message; end it in
 * both cases. */
int obtain_begin(struct obtain *obtain, const char *uri, const char *architecture, const struct settings *settings);

/* Looks, waits for others, or makes it. Returns 0: `image` is a found one; 1: this image is not for a cache, and is to be made
 * where it is needed (obtain_produce); -1 after a message. */
int obtain_image(struct obtain *obtain);

/* Writes the image to `fd`, an empty file. Returns 0, or -1 after a message. */
int obtain_produce(struct obtain *obtain, int fd);

void obtain_end(struct obtain *obtain);

#endif
