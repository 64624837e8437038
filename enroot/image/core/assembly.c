#define _GNU_SOURCE
#include "assembly.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "merge.h"
#include "stream.h"
#include "tar.h"
#include "walk.h"

/* Two streams hold up to 9 each while they wait; the rest is what the writers work on. 48 MiB. */
#define BLOCKS 48
#define PROGRESS_NS 100000000

struct image_assembly {
	struct image_request request;
	struct image_pool pool;
	struct image_tree *tree;
	struct image_records *records;
	struct image_directory *directory;
	struct image_merge *merge;
	struct image_stream *next; /* of the layer below, begun while this one is read */
	unsigned next_layer;
	atomic_ullong read;
	int64_t told;
};

struct image_assembly *image_assembly_new(const struct image_request *request, struct image_error *err)
{
	struct image_assembly *assembly = calloc(1, sizeof(*assembly));
	struct image_sink sink;

	if (!assembly) {
		image_fail_memory(err);
		return NULL;
	}
	assembly->request = *request;
	image_pool_init(&assembly->pool, BLOCKS, IMAGE_BLOCK_SIZE);
	assembly->tree = image_tree_new(err);
	assembly->records = assembly->tree ? image_records_new(request->records_folder, err) : NULL;
	assembly->directory = assembly->records ? image_directory_new(assembly->tree, assembly->records,
								       &request->directory, err) : NULL;
	if (assembly->directory) {
		sink = image_directory_sink(assembly->directory);
		assembly->merge = image_merge_new(assembly->tree, &sink, err);
	}
	if (assembly->merge)
		return assembly;
	image_assembly_free(assembly);
	return NULL;
}

void image_assembly_free(struct image_assembly *assembly)
{
	if (!assembly)
		return;
	image_merge_free(assembly->merge);
	image_directory_free(assembly->directory);
	image_stream_close(assembly->next);
	image_records_free(assembly->records);
	image_tree_free(assembly->tree);
	image_pool_destroy(&assembly->pool);
	free(assembly);
}

static int tell(struct image_assembly *assembly, struct image_error *err)
{
	struct timespec now;
	int64_t ns;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	ns = now.tv_sec * 1000000000 + now.tv_nsec;
	if (!assembly->request.progress || ns - assembly->told < PROGRESS_NS)
		return 0;
	assembly->told = ns;
	if (assembly->request.progress(assembly->request.context, atomic_load(&assembly->read)))
		return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
	return 0;
}

static struct image_stream *open_layer(struct image_assembly *assembly, unsigned layer, struct image_error *err)
{
	const struct image_layer *one = &assembly->request.layers[layer];
	struct image_stream_request request = { .digest = one->digest, .diff_id = one->diff_id,
						.counter = &assembly->read };

	request.fd = assembly->request.open_layer(assembly->request.context, layer);
	if (request.fd < 0) {
		image_fail(err, IMAGE_FAULT_CANCELLED, "", "the layer could not be opened");
		return NULL;
	}
	return image_stream_open(&assembly->pool, &request, err);
}

/* The stream of a layer; the one below it begins to be read as well. */
static struct image_stream *take_layer(struct image_assembly *assembly, unsigned layer, struct image_error *err)
{
	struct image_stream *stream = assembly->next;

	assembly->next = NULL;
	if (!stream && !(stream = open_layer(assembly, layer, err)))
		return NULL;
	if (layer + 1 < assembly->request.n_layers) {
		assembly->next = open_layer(assembly, layer + 1, err);
		if (!assembly->next) {
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

static int next_slice(void *context, struct image_slice *slice, struct image_error *err)
{
	return image_tar_data(context, slice, err);
}

typedef int (*entry_reader)(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
			    const struct image_content *content, struct image_error *err);

static int read_entries(struct image_assembly *assembly, struct image_stream *stream, unsigned layer,
			entry_reader each, struct image_error *err)
{
	struct image_input input = { next_block, stream };
	struct image_tar *tar = image_tar_new(&input, err);
	struct image_content content = { next_slice, tar };
	const struct image_entry *entry;
	int got = tar ? 1 : -1;

	while (got > 0 && (got = image_tar_next(tar, &entry, err)) > 0)
		if (each(assembly->merge, layer, entry, &content, err) || tell(assembly, err))
			got = -1;
	image_tar_free(tar);
	return got;
}

static int read_layer(struct image_assembly *assembly, unsigned layer, struct image_error *err)
{
	struct image_stream *stream = take_layer(assembly, layer, err);
	int result = stream ? read_entries(assembly, stream, layer, image_merge_entry, err) : -1;

	image_stream_close(stream);
	while (!result && image_merge_wants_again(assembly->merge, layer)) {
		stream = open_layer(assembly, layer, err);
		result = stream ? read_entries(assembly, stream, layer, image_merge_again, err) : -1;
		image_stream_close(stream);
		image_merge_again_ended(assembly->merge, layer);
	}
	return result;
}

static int read_directory(struct image_assembly *assembly, struct image_error *err)
{
	struct image_walk *walk = image_walk_new(assembly->request.source, &assembly->pool, &assembly->read, err);
	struct image_content content = { image_walk_data, walk };
	const struct image_entry *entry;
	int got = walk ? 1 : -1;

	while (got > 0 && (got = image_walk_next(walk, &entry, err)) > 0)
		if (image_merge_entry_as_is(assembly->merge, entry, &content, err) || tell(assembly, err))
			got = -1;
	image_walk_free(walk);
	return got;
}

int image_assembly_run(struct image_assembly *assembly, int *layer, struct image_error *err)
{
	if (assembly->request.source && read_directory(assembly, err))
		return -1;
	for (*layer = 0; *layer < (int)assembly->request.n_layers; ++*layer)
		if (read_layer(assembly, (unsigned)*layer, err))
			return -1;
	*layer = -1;
	if (image_merge_end(assembly->merge, err) || image_directory_finish(assembly->directory, err))
		return -1;
	assembly->told = 0;
	return tell(assembly, err);
}

int image_assembly_seal(struct image_assembly *assembly, struct image_error *err)
{
	return image_directory_seal(assembly->directory, err);
}

int image_assembly_manifest(struct image_assembly *assembly, int fd, bool part, struct image_summary *summary,
			    struct image_error *err)
{
	return image_manifest_write(assembly->tree, assembly->records, fd, part ? assembly->directory : NULL, summary,
				    err);
}

struct image_lost_count image_assembly_lost(const struct image_assembly *assembly, unsigned loss)
{
	const struct image_lost *lost = &image_directory_losses(assembly->directory)[loss];
	struct image_lost_count result = { .count = atomic_load(&lost->count) };

	snprintf(result.first, sizeof(result.first), "%s", lost->first);
	return result;
}

struct image_progress image_assembly_progress(struct image_assembly *assembly)
{
	const struct image_directory_count *counts = image_directory_counts(assembly->directory);

	return (struct image_progress){ atomic_load(&assembly->read), atomic_load(&counts->bytes),
					atomic_load(&counts->files), atomic_load(&counts->kept) };
}
