/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of a registry's image that the cache has, and those that it gets while they are downloaded. */
#ifndef IMPORTING_KEPT_LAYERS_H
#define IMPORTING_KEPT_LAYERS_H

#include "native/cache/cache.h"
#include "native/registry/registry.h"

struct kept_layers {
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
void kept_layers_begin(struct kept_layers *kept, struct cache *cache, struct registry *registry, const struct registry_image *image);

/* A descriptor of layer i, from the cache, the caller's to close; waits for whoever downloads it. -1: it is to be fetched. */
int kept_layers_open(struct kept_layers *kept, unsigned layer);

/* Tells others how far the downloads are. */
void kept_layers_progress(struct kept_layers *kept);

/* All layers were read, and are what their digests say: those that were downloaded are kept, with all users where the very
 * requests for them did not say who asks. */
void kept_layers_commit(struct kept_layers *kept);

/* Reading failed. Whether a layer of the cache is to blame; then it is out of the way, and the user knows. */
bool kept_layers_failed(struct kept_layers *kept);

void kept_layers_end(struct kept_layers *kept);

#endif
