/* SPDX-License-Identifier: Apache-2.0 */
/* Takes layers of a registry's image from the cache, and stores the others there while they are downloaded. */
#ifndef IMPORTING_LAYER_CACHE_USE_H
#define IMPORTING_LAYER_CACHE_USE_H

#include "native/cache/cache.h"
#include "native/registry/registry.h"

struct layer_cache_use {
	struct cache *cache;
	const struct registry_image *image;
	struct cache_blob *blobs; /* of each layer */
	bool *skip;               /* for registry_layers_start */
	int *keep;
	struct registry *registry;
	bool anonymous;           /* so far nobody was told who asks for the image; at the end for none of its layers */
	bool rejected;            /* one from the cache was damaged: another try can do without it */
};

/* Looks for all layers, waits for none. `cache` may be NULL: then none is there and none is kept. */
void layer_cache_use_begin(struct layer_cache_use *kept, struct cache *cache, struct registry *registry,
			   const struct registry_image *image);

/* A descriptor of layer i, from the cache, the caller's to close; waits for whoever downloads it. -1: it is to be fetched. */
int layer_cache_use_open(struct layer_cache_use *kept, unsigned layer);

/* Tells others how far the downloads are. */
void layer_cache_use_progress(struct layer_cache_use *kept);

/* All layers were read, and are what their digests say: those that were downloaded are kept, with all users where the very
 * requests for them did not say who asks. */
void layer_cache_use_commit(struct layer_cache_use *kept);

/* Reading failed. Whether a layer of the cache is to blame, or may be, being another user's; then it is out of the way, and the user
 * knows. */
bool layer_cache_use_failed(struct layer_cache_use *kept);

void layer_cache_use_end(struct layer_cache_use *kept);

#endif
