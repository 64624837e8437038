/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all layers of an image, merges them, and hands the files to a sink (sink.h), which writes them. */
#ifndef IMAGE_LAYERS_H
#define IMAGE_LAYERS_H

#include <stdatomic.h>

#include "listing.h"
#include "merge.h"
#include "records.h"

struct image_layer {
	const char *name;          /* for messages: a path, or a digest */
	const char *digest;        /* SHA-256 of its bytes as they come, in hexadecimal, or NULL */
	const char *diff_id;       /* of its decompressed bytes, or NULL */
	unsigned long long length; /* bytes to read from the descriptor; 0: up to its end */
	int listing; /* descriptor of its listing (listing.h), to be read instead of it; or -1 */
	int list_to; /* descriptor of a new file for its listing, for a sink that is a directory; or -1 */
};

struct image_layers_request {
	const struct image_layer *layers; /* the top one first */
	unsigned n_layers;
	/* Gives a descriptor of a layer's bytes, which is closed here; -1: stop. Called from one thread, a little
	 * before the layer is needed; rarely a second time. */
	int (*open_layer)(void *context, unsigned layer);
	/* Called ten times a second at most with the bytes of the source that were read. Non-zero: stop. */
	int (*progress)(void *context, unsigned long long bytes);
	void *context;
};

/* What a sink that is a directory tells of itself, for listings; all NULL for other sinks. */
struct image_layers_target {
	/* The node whose content came last, since this was last asked; IMAGE_ROOT: none did. */
	uint32_t (*last_node)(void *sink);
	/* How often something was replaced by a later entry of its layer. */
	unsigned (*replaced)(void *sink);
	void *sink;
};

struct image_layers {
	struct image_layers_request request;
	struct image_pool pool;
	struct image_merge *merge;
	struct image_layers_target target; /* the sink, where listings are to be written */
	struct image_listing *listing;     /* of the layer that is read; then kept in `listings` until all digests are there */
	struct image_listing **listings;
	struct image_stream *next; /* of the layer below, begun while this one is read */
	unsigned generated;        /* 1: something lies above the top layer */
	atomic_ullong read;
	int64_t reported_ns; /* when `progress` was called last */
	uint64_t holes; /* bytes that sparse files are said to have, and of which nothing is stored */
	struct image_interrupt interrupt;
};

/* What `request` points to stays the caller's and must outlive it. */
struct image_layers *image_layers_new(struct image_tree *tree, const struct image_sink *sink,
				      const struct image_layers_request *request, struct image_error *err);
/* Whatever holds blocks of the layers, the sink, must have given them back. */
void image_layers_free(struct image_layers *layers);

/* A file that lies above all layers; call before the run. Up to IMAGE_BLOCK_SIZE bytes. */
int image_layers_generate(struct image_layers *layers, const struct image_entry *entry, const void *data,
			  struct image_error *err);

/* Reads all layers. On failure `*layer` is the one that was being read, or -1. */
int image_layers_run(struct image_layers *layers, int *layer, struct image_error *err);

/* After the sink has every digest: the listings become whole. */
int image_layers_end_listings(struct image_layers *layers, struct image_records *records, struct image_error *err);

/* Calls `progress` if it is time. -1: stop. */
int image_layers_tell(struct image_layers *layers, struct image_error *err);

#endif
