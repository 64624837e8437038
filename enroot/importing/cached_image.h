/* SPDX-License-Identifier: Apache-2.0 */
/* An image as a squashfs file: from the cache, or imported into it. */
#ifndef IMPORTING_CACHED_IMAGE_H
#define IMPORTING_CACHED_IMAGE_H

#include "native/cache/cache.h"
#include "import_source.h"

struct cached_image {
	const char *uri, *architecture;
	const struct settings *settings;
	struct cache *cache;
	struct registry_documents documents, asking; /* asking: kept, and not looked for */
	struct import_source import;
	struct cache_image image;
	bool found; /* nothing had to be made */
	bool identified; /* a request that is over said who asks: the image is not for all users */
	bool anonymous;  /* all of it came without that: it may be for all */
	bool exceeds_cache; /* the cache has no room for it, as was known before anything was fetched */
};

/* Opens the cache; asks nobody yet. `architecture` may be NULL: this machine's. Returns 0, or -1 after a message; end it in
 * both cases. */
int cached_image_begin(struct cached_image *cached, const char *uri, const char *architecture, const struct settings *settings);

/* Looks, waits for others, or makes it. Returns 0: `image` is a found one; 1: this image is not for a cache, and is to be made
 * where it is needed (cached_image_produce); -1 after a message. */
int cached_image_get(struct cached_image *cached);

/* Writes the image to `fd`, an empty file. Returns 0, or -1 after a message. */
int cached_image_produce(struct cached_image *cached, int fd);

void cached_image_end(struct cached_image *cached);

#endif
