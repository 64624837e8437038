/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the merged layers of an image into a directory: receives entry after entry, and queues them for the threads
 * that write. finish.c, replace.c, native/volume and enroot/importing call it. */
#define _GNU_SOURCE
#include "directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "parts.h"

/* Up to here a file is written with others by one thread, so that they are hashed at once; above, while it
 * is still read. Those of similar size go together: hashing takes as long as the longest does. */
#define SMALL ((uint64_t)64 << 10)
#define MEDIUM ((uint64_t)4 << 20)
#define SMALL_BYTES ((size_t)512 << 10)
#define MEDIUM_BYTES ((size_t)12 << 20)
/* Memory for files that lie across several blocks. */
#define COPIED_MOST ((size_t)48 << 20)
/* With so many threads the file system is slow: then a batch is small, so that all have one. */
#define MANY_JOBS 16

struct image_directory *image_directory_new(struct image_tree *tree, struct image_records *records,
					    const struct image_directory_request *request, struct image_error *err)
{
	struct image_directory *directory = calloc(1, sizeof(*directory));

	if (!directory) {
		image_fail_memory(err);
		return NULL;
	}
	directory->tree = tree;
	directory->records = records;
	directory->request = *request;
	directory->uid = geteuid();
	directory->gid = getegid();
	pthread_mutex_init(&directory->mutex, NULL);
	pthread_cond_init(&directory->made, NULL);
	/* Two at least: a large file keeps one waiting for its parts. */
	directory->work = thread_pool_new(request->jobs < 2 ? 2 : request->jobs, sizeof(struct writer_state), writer_state_begin,
					  writer_state_end, directory, err);
	if (!directory->work) {
		image_directory_free(directory);
		return NULL;
	}
	return directory;
}

void image_directory_ask(struct image_directory *directory, const struct image_interrupt *interrupt)
{
	thread_pool_ask(directory->work, interrupt);
}

static void drop_unwritten(struct image_directory *directory)
{
	for (int size = 0; size < 2; size++) {
		struct batch *batch = directory->batches[size];

		for (unsigned i = 0; batch && i < batch->count; i++)
			item_release(directory, &batch->items[i]);
		free(batch);
		directory->batches[size] = NULL;
	}
	if (directory->has_pending)
		item_release(directory, &directory->pending);
}

void image_directory_free(struct image_directory *directory)
{
	if (!directory)
		return;
	if (directory->stream)
		stream_file_end(directory->stream, false);
	drop_unwritten(directory);
	thread_pool_free(directory->work);
	for (size_t i = 0; i < FOLDER_CHUNKS; i++)
		free(atomic_load(&directory->folders[i]));
	free(directory->links);
	pthread_cond_destroy(&directory->made);
	pthread_mutex_destroy(&directory->mutex);
	free(directory);
}

static int flush(struct image_directory *directory, int size, struct image_error *err)
{
	struct batch *batch = directory->batches[size];

	if (!batch)
		return 0;
	directory->batches[size] = NULL;
	return thread_pool_put(directory->work, &batch->job, err);
}

int directory_flush(struct image_directory *directory, struct image_error *err)
{
	return flush(directory, 0, err) || flush(directory, 1, err) ? -1 : 0;
}

/* FNV-1a of the path of the folder: the same in every shard. */
static bool is_mine(const struct image_directory *directory, uint32_t folder_node)
{
	char path[IMAGE_PATH_LONGEST + 1] = "";
	uint64_t hash = 0xcbf29ce484222325u;

	if (directory->request.shards < 2)
		return true;
	image_tree_path(directory->tree, folder_node, path, sizeof(path));
	for (const char *c = path; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
	return (hash ^ hash >> 32) % directory->request.shards == directory->request.shard;
}

bool image_directory_has(const struct image_directory *directory, uint32_t node)
{
	const struct image_node *one = image_tree_node(directory->tree, node);

	if (one->kind == 'd')
		return is_mine(directory, node);
	return is_mine(directory, image_tree_node(directory->tree, one->link)->parent);
}

static struct item *new_item(struct image_directory *directory, uint32_t node, const struct image_entry *entry,
			     struct item *item, struct image_error *err)
{
	*item = (struct item){ .node = node, .folder = folder_of(directory->tree, node), .kind = entry->kind };
	if (image_records_prepare(directory->records, entry, &item->record, err))
		return NULL;
	if (!entry->target_length && !entry->xattrs_length)
		return item;
	item->target = malloc(entry->target_length + 1 + entry->xattrs_length);
	if (!item->target) {
		image_fail_memory(err);
		return NULL;
	}
	memcpy(item->target, entry->target, entry->target_length);
	item->target[entry->target_length] = 0;
	item->xattrs = (unsigned char *)item->target + entry->target_length + 1;
	if (entry->xattrs_length)
		memcpy((unsigned char *)item->target + entry->target_length + 1, entry->xattrs, entry->xattrs_length);
	return item;
}

static int add(struct image_directory *directory, const struct item *item, struct image_error *err)
{
	int size = item->kind == 'f' && item->record.size > SMALL;
	struct batch *batch = directory->batches[size];
	unsigned most = directory->request.jobs > MANY_JOBS ? BATCH_ITEMS / 4 : BATCH_ITEMS;

	if (!batch) {
		batch = calloc(1, sizeof(*batch));
		if (!batch)
			return image_fail_memory(err);
		batch->job.run = batch_run;
		batch->directory = directory;
		directory->batches[size] = batch;
	}
	batch->items[batch->count++] = *item;
	batch->bytes += item->kind == 'f' ? item->record.size : 0;
	if (batch->count < most && batch->bytes < (size ? MEDIUM_BYTES : SMALL_BYTES))
		return 0;
	return flush(directory, size, err);
}

static int on_folder(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	struct image_directory *directory = sink;
	struct image_record record;

	if (image_records_prepare(directory->records, entry, &record, err))
		return -1;
	return image_records_put_next(directory->records, node, &record, err);
}

static int on_special(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	struct image_directory *directory = sink;
	struct item item;

	if (directory->request.pick)
		return on_folder(sink, node, entry, err);
	if (!is_mine(directory, image_tree_node(directory->tree, node)->parent))
		return 0;
	return new_item(directory, node, entry, &item, err) ? add(directory, &item, err) : -1;
}

/* A small file joins the batch when its content comes; an empty one has none. */
static int on_file(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	struct image_directory *directory = sink;
	struct item item;

	directory->last_node = node;
	if (entry->absent)
		return image_fail(err, IMAGE_FAULT_ABSENT, entry->path, "is not described by the listing of its layer");
	if (entry->digest) {
		directory->skipping = true;
		if (image_records_prepare(directory->records, entry, &item.record, err))
			return -1;
		memcpy(item.record.digest, entry->digest, sizeof(item.record.digest));
		return image_records_put_next(directory->records, node, &item.record, err);
	}
	directory->skipping = !is_mine(directory, image_tree_node(directory->tree, node)->parent);
	if (directory->skipping)
		return 0;
	if (!new_item(directory, node, entry, &item, err))
		return -1;
	if (entry->sparse || entry->size > MEDIUM ||
	    (entry->size > SMALL && atomic_load(&directory->copied) + entry->size > COPIED_MOST)) {
		directory->stream = stream_file_new(directory, &item);
		if (!directory->stream) {
			item_release(directory, &item);
			return image_fail_memory(err);
		}
		return thread_pool_put(directory->work, stream_file_job(directory->stream), err);
	}
	directory->pending = item;
	directory->has_pending = true;
	return 0;
}

static int on_slice(void *sink, const struct image_slice *slice, struct image_error *err)
{
	struct image_directory *directory = sink;
	struct item *item = &directory->pending;

	if (directory->skipping)
		return 0;
	if (directory->stream)
		return stream_file_add(directory->stream, slice, err);
	if (slice->length == item->record.size) {
		item->block = image_block_hold(slice->block);
		item->data = slice->data;
		return 0;
	}
	/* The few that lie across two blocks. */
	if (!item->copy) {
		item->copy = malloc(item->record.size);
		if (!item->copy)
			return image_fail_memory(err);
		atomic_fetch_add(&directory->copied, item->record.size);
	}
	memcpy(item->copy + slice->offset, slice->data, slice->length);
	item->data = item->copy;
	return 0;
}

static int on_file_end(void *sink, struct image_error *err)
{
	struct image_directory *directory = sink;

	if (directory->skipping)
		return 0;
	if (directory->stream) {
		stream_file_end(directory->stream, true);
		directory->stream = NULL;
		return thread_pool_has_failed(directory->work, err) ? -1 : 0;
	}
	directory->has_pending = false;
	return add(directory, &directory->pending, err);
}

static int on_link(void *sink, uint32_t node, uint32_t primary, struct image_error *err)
{
	struct image_directory *directory = sink;

	(void)primary; /* the tree knows it, and may know better later */
	if (directory->request.pick)
		return 0;
	if (directory->n_links == directory->links_capacity) {
		size_t capacity = directory->links_capacity ? 2 * directory->links_capacity : 256;
		uint32_t *links = reallocarray(directory->links, capacity, sizeof(*links));

		if (!links)
			return image_fail_memory(err);
		directory->links = links;
		directory->links_capacity = capacity;
	}
	directory->links[directory->n_links++] = node;
	return 0;
}

static const struct image_sink_operations operations = {
	.folder = on_folder, .special = on_special, .file = on_file, .slice = on_slice, .file_end = on_file_end,
	.link = on_link, .replace = directory_replace,
};

struct image_sink image_directory_sink(struct image_directory *directory)
{
	return (struct image_sink){ &operations, directory };
}

const struct image_lost *image_directory_losses(const struct image_directory *directory)
{
	return directory->losses;
}

uint32_t image_directory_last_node(struct image_directory *directory)
{
	uint32_t last_node = directory->last_node;

	directory->last_node = IMAGE_ROOT;
	return last_node;
}

unsigned image_directory_replaced(const struct image_directory *directory)
{
	return directory->replaced;
}

struct image_directory_count *image_directory_counts(struct image_directory *directory)
{
	return &directory->counts;
}
