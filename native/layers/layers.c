/* SPDX-License-Identifier: Apache-2.0 */
/* Reads all layers of an image, the top one first, and hands the merged files to a sink: code that writes them to a
 * directory or to a squashfs image. enroot/importing and native/volume call it. */
#define _GNU_SOURCE
#include "layers.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stream.h"
#include "tar.h"

/* Two streams hold up to 9 each while they wait; the rest is what the writers work on. 48 MiB. */
#define BLOCKS 48
#define PROGRESS_NS 100000000
/* A header of 512 bytes can say 2^62, and each byte is hashed, as a zero: at this bound for a minute or two. A real image
 * has /var/log/lastlog with holes of some GiB, where users have large numbers. */
#define HOLES_MOST ((uint64_t)64 << 30)

static int tell(void *context, struct image_error *err)
{
	return image_layers_tell(context, err);
}

struct image_layers *image_layers_new(struct image_tree *tree, const struct image_sink *sink,
				      const struct image_layers_request *request, struct image_error *err)
{
	struct image_layers *layers = calloc(1, sizeof(*layers));

	if (!layers) {
		image_fail_memory(err);
		return NULL;
	}
	layers->request = *request;
	layers->interrupt = (struct image_interrupt){ tell, layers };
	image_pool_init(&layers->pool, BLOCKS, IMAGE_BLOCK_SIZE);
	layers->merge = image_merge_new(tree, sink, err);
	if (layers->merge)
		return layers;
	image_layers_free(layers);
	return NULL;
}

void image_layers_free(struct image_layers *layers)
{
	if (!layers)
		return;
	for (unsigned i = 0; layers->listings && i < layers->request.n_layers; i++)
		image_listing_free(layers->listings[i]);
	free(layers->listings);
	image_merge_free(layers->merge);
	image_stream_close(layers->next);
	image_pool_destroy(&layers->pool);
	free(layers);
}

int image_layers_tell(struct image_layers *layers, struct image_error *err)
{
	struct timespec now;
	int64_t ns;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	ns = now.tv_sec * 1000000000 + now.tv_nsec;
	if (!layers->request.progress || ns - layers->reported_ns < PROGRESS_NS)
		return 0;
	layers->reported_ns = ns;
	if (layers->request.progress(layers->request.context, atomic_load(&layers->read)))
		return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
	return 0;
}

static struct image_stream *open_layer(struct image_layers *layers, unsigned layer, struct image_error *err)
{
	const struct image_layer *one = &layers->request.layers[layer];
	struct image_stream_request request = { .digest = one->digest, .diff_id = one->diff_id, .length = one->length,
						.counter = &layers->read, .interrupt = &layers->interrupt };

	request.fd = layers->request.open_layer(layers->request.context, layer);
	if (request.fd < 0) {
		image_fail(err, IMAGE_FAULT_CANCELLED, "", "the layer could not be opened");
		return NULL;
	}
	return image_stream_open(&layers->pool, &request, err);
}

/* The stream of a layer; the one below it begins to be read as well. */
static struct image_stream *take_layer(struct image_layers *layers, unsigned layer, struct image_error *err)
{
	struct image_stream *stream = layers->next;

	layers->next = NULL;
	if (!stream && !(stream = open_layer(layers, layer, err)))
		return NULL;
	if (layer + 1 < layers->request.n_layers && layers->request.layers[layer + 1].listing < 0) {
		layers->next = open_layer(layers, layer + 1, err);
		if (!layers->next) {
			image_stream_close(stream);
			return NULL;
		}
	}
	return stream;
}

static int next_block(void *context, struct image_block **block, struct image_error *err)
{
	return image_stream_next(context, block, err);
}

struct reading {
	struct image_layers *layers;
	struct image_tar *tar;
};

/* One file may be most of an image: it is told how far that is, too. */
static int next_slice(void *context, struct image_slice *slice, struct image_error *err)
{
	const struct reading *reading = context;

	return image_layers_tell(reading->layers, err) ? -1 : image_tar_data(reading->tar, slice, err);
}

typedef int (*entry_reader)(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
			    const struct image_content *content, struct image_error *err);

static int check_holes(struct image_layers *layers, const struct image_entry *entry, struct image_error *err)
{
	uint64_t holes = entry->sparse ? entry->size - entry->stored : 0;

	if (holes <= HOLES_MOST - layers->holes) {
		layers->holes += holes;
		return 0;
	}
	return image_fail(err, IMAGE_FAULT_LIMIT, entry->path, "claims %llu bytes of holes; the sparse files of an image have 64 GiB of them "
			  "at most, in sum. Leave it out of the image, or make it where it is used (truncate -s)",
			  (unsigned long long)holes);
}

static int note(struct image_layers *layers, const struct image_entry *entry, struct image_error *err)
{
	uint32_t node = layers->target.sink ? layers->target.last_node(layers->target.sink) : IMAGE_ROOT;

	return layers->listing ? image_listing_add(layers->listing, entry, node, err) : 0;
}

static int read_entries(struct image_layers *layers, struct image_stream *stream, unsigned layer,
			entry_reader each, struct image_error *err)
{
	struct image_input input = { next_block, stream };
	struct image_tar *tar = image_tar_new(&input, err);
	struct reading reading = { layers, tar };
	struct image_content content = { next_slice, &reading };
	const struct image_entry *entry;
	int got = tar ? 1 : -1;

	while (got > 0 && (got = image_tar_next(tar, &entry, err)) > 0)
		if ((each == image_merge_entry && check_holes(layers, entry, err)) ||
		    each(layers->merge, layer, entry, &content, err) || note(layers, entry, err) ||
		    image_layers_tell(layers, err))
			got = -1;
	image_tar_free(tar);
	return got;
}

static int no_slice(void *context, struct image_slice *slice, struct image_error *err)
{
	(void)context, (void)slice, (void)err;
	return 0;
}

static int read_listing(struct image_layers *layers, unsigned layer, unsigned number, entry_reader each,
			struct image_error *err)
{
	struct image_listing_reader *reader = image_listing_open(layers->request.layers[layer].listing, err);
	struct image_content content = { no_slice, NULL };
	const struct image_entry *entry;
	int got = reader ? 1 : -1;

	while (got > 0 && (got = image_listing_next(reader, &entry, err)) > 0)
		if (each(layers->merge, number, entry, &content, err) || image_layers_tell(layers, err))
			got = -1;
	image_listing_close(reader);
	return got;
}

static int read_from_listing(struct image_layers *layers, unsigned layer, unsigned number, struct image_error *err)
{
	int result = read_listing(layers, layer, number, image_merge_entry, err);

	while (!result && image_merge_wants_again(layers->merge, number)) {
		result = read_listing(layers, layer, number, image_merge_again, err);
		image_merge_again_ended(layers->merge, number);
	}
	return result;
}

/* `layer` counts from the top layer, `number` from what was generated above it. */
static int read_layer(struct image_layers *layers, unsigned layer, struct image_error *err)
{
	struct image_listing *listing = layers->listings[layer];
	unsigned number = layer + layers->generated;
	unsigned replaced = listing ? layers->target.replaced(layers->target.sink) : 0;
	struct image_stream *stream;
	int result;

	if (layers->request.layers[layer].listing >= 0)
		return read_from_listing(layers, layer, number, err);
	stream = take_layer(layers, layer, err);
	layers->listing = listing;
	result = stream ? read_entries(layers, stream, number, image_merge_entry, err) : -1;
	layers->listing = NULL;
	/* What decompresses may wait for blocks that nobody gives back any more. */
	if (result)
		image_pool_stop(&layers->pool);
	image_stream_close(stream);
	/* What was told twice, or later, is not whose digest it seems to be. */
	if (listing && (layers->target.replaced(layers->target.sink) != replaced ||
			image_merge_wants_again(layers->merge, number)))
		image_listing_give_up(listing);
	while (!result && image_merge_wants_again(layers->merge, number)) {
		stream = open_layer(layers, layer, err);
		result = stream ? read_entries(layers, stream, number, image_merge_again, err) : -1;
		if (result)
			image_pool_stop(&layers->pool);
		image_stream_close(stream);
		image_merge_again_ended(layers->merge, number);
	}
	return result;
}

static int begin_listings(struct image_layers *layers, struct image_error *err)
{
	unsigned count = layers->request.n_layers;

	layers->listings = calloc(count + 1u, sizeof(struct image_listing *)); /* NULL at the end */
	if (!layers->listings)
		return image_fail_memory(err);
	for (unsigned i = 0; layers->target.sink && i < count; i++) {
		if (layers->request.layers[i].list_to < 0)
			continue;
		layers->listings[i] = image_listing_new(layers->request.layers[i].list_to, err);
		if (!layers->listings[i])
			return -1;
	}
	return 0;
}

int image_layers_end_listings(struct image_layers *layers, struct image_records *records, struct image_error *err)
{
	for (unsigned i = 0; i < layers->request.n_layers; i++)
		if (layers->listings[i] && image_listing_finish(layers->listings[i], records, err))
			return -1;
	return 0;
}

int image_layers_run(struct image_layers *layers, int *layer, struct image_error *err)
{
	*layer = -1;
	if (begin_listings(layers, err))
		return -1;
	for (*layer = 0; *layer < (int)layers->request.n_layers; ++*layer)
		if (read_layer(layers, (unsigned)*layer, err))
			return -1;
	*layer = -1;
	return image_merge_end(layers->merge, err);
}

struct generated {
	struct image_block *block;
	bool given;
};

static int generated_slice(void *context, struct image_slice *slice, struct image_error *err)
{
	struct generated *generated = context;

	(void)err;
	if (generated->given || !generated->block->length)
		return 0;
	generated->given = true;
	*slice = (struct image_slice){ generated->block->data, generated->block->length, 0, generated->block };
	return 1;
}

int image_layers_generate(struct image_layers *layers, const struct image_entry *entry, const void *data,
			  struct image_error *err)
{
	struct generated generated = { .block = image_block_await(&layers->pool, &layers->interrupt, err) };
	struct image_content content = { generated_slice, &generated };
	int result;

	if (!generated.block)
		return -1;
	memcpy(generated.block->data, data, entry->size);
	generated.block->length = entry->size;
	layers->generated = 1;
	result = image_merge_entry(layers->merge, 0, entry, &content, err);
	image_block_release(generated.block);
	return result;
}
