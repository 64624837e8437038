/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the merged layers of an image as a squashfs 4.0 file: receives entry after entry. tables.c and
 * enroot/importing call it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "native/layers/write_at.h"
#include "parts.h"

static uint64_t write_options(struct squashfs *squashfs, int *result, struct image_error *err)
{
	unsigned char piece[2 + 8];
	size_t length = squashfs_compressor_options(squashfs->options.compression, squashfs->options.level, piece + 2);

	*result = 0;
	if (!length)
		return SQUASHFS_SUPERBLOCK;
	put16(piece, (uint16_t)(length | SQUASHFS_METADATA_PLAIN));
	*result = image_write_at(squashfs->fd, piece, 2 + length, SQUASHFS_SUPERBLOCK, err);
	return SQUASHFS_SUPERBLOCK + 2 + length;
}

struct squashfs *squashfs_new(struct image_tree *tree, struct image_records *records, int fd,
			      const struct squashfs_options *options, struct image_error *err)
{
	struct squashfs *squashfs = calloc(1, sizeof(*squashfs));
	struct squashfs_data_request request = { .fd = fd, .block_size = options->block_size, .jobs = options->jobs,
						 .compression = options->compression, .level = options->level,
						 .spill = image_tree_spill(tree) };
	int result;

	if (!squashfs) {
		image_fail_memory(err);
		return NULL;
	}
	squashfs->tree = tree;
	squashfs->records = records;
	squashfs->fd = fd;
	squashfs->options = *options;
	request.offset = write_options(squashfs, &result, err);
	if (!result && !squashfs_compressor_begin(&squashfs->compressor, options->compression, options->level, err))
		squashfs->data = squashfs_data_new(&request, err);
	if (squashfs->data)
		return squashfs;
	squashfs_free(squashfs);
	return NULL;
}

void squashfs_free(struct squashfs *squashfs)
{
	if (!squashfs)
		return;
	squashfs_data_free(squashfs->data);
	squashfs_compressor_end(&squashfs->compressor);
	squashfs_metadata_free(&squashfs->inodes);
	squashfs_metadata_free(&squashfs->folders);
	squashfs_xattrs_free(&squashfs->xattrs);
	image_order_free(&squashfs->order);
	free(squashfs->extra);
	free(squashfs->index);
	free(squashfs);
}

static int on_entry(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	struct squashfs *squashfs = sink;
	struct image_record record;

	if (image_records_prepare(squashfs->records, entry, &record, err))
		return -1;
	return image_records_put(squashfs->records, node, &record, err);
}

int squashfs_put_shared(struct squashfs *squashfs, struct image_error *err)
{
	struct squashfs_block *block = squashfs->shared;
	struct fragment *fragment;

	if (!block)
		return 0;
	squashfs->shared = NULL;
	if (squashfs->n_fragments == squashfs->fragments_capacity) {
		size_t capacity = squashfs->fragments_capacity ? 2 * squashfs->fragments_capacity : 4096 / sizeof(struct fragment);
		struct image_spill *spill = image_tree_spill(squashfs->tree);
		struct fragment *fragments = image_spill_take(spill, capacity * sizeof(*fragments));

		if (!fragments) {
			squashfs_block_drop(block);
			return image_fail_memory(err);
		}
		if (squashfs->n_fragments)
			memcpy(fragments, squashfs->fragments, squashfs->n_fragments * sizeof(*fragments));
		image_spill_give(spill, squashfs->fragments);
		squashfs->fragments = fragments;
		squashfs->fragments_capacity = capacity;
	}
	fragment = &squashfs->fragments[squashfs->n_fragments];
	if (squashfs_data_run(squashfs->data, &fragment->run, err)) {
		squashfs_block_drop(block);
		return -1;
	}
	squashfs->n_fragments++;
	fragment->entry = squashfs_data_entries(squashfs->data);
	block->run = fragment->run;
	block->plain = squashfs->options.plain_fragments;
	return squashfs_block_put(block, err);
}

/* Room for `length` bytes that lie with the ends of other files. */
static int make_shared(struct squashfs *squashfs, size_t length, struct image_error *err)
{
	if (squashfs->shared && squashfs->options.block_size - squashfs->shared->length < length &&
	    squashfs_put_shared(squashfs, err))
		return -1;
	if (!squashfs->shared && !(squashfs->shared = squashfs_block_take(squashfs->data, err)))
		return -1;
	squashfs->content.fragment = (uint32_t)squashfs->n_fragments;
	squashfs->content.fragment_offset = (uint32_t)squashfs->shared->length;
	return 0;
}

static int on_file(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err)
{
	struct squashfs *squashfs = sink;

	if (image_records_prepare(squashfs->records, entry, &squashfs->record, err))
		return -1;
	squashfs->node = node;
	squashfs->position = 0;
	squashfs->content = (struct content){ .entry = squashfs_data_entries(squashfs->data), .run = SQUASHFS_ABSENT,
					      .fragment = SQUASHFS_NONE };
	squashfs->small = entry->size && entry->size < squashfs->options.block_size && !squashfs->options.no_fragments;
	if (!squashfs->small)
		return 0;
	if (make_shared(squashfs, entry->size, err))
		return -1;
	squashfs->content.entry = squashfs_data_entries(squashfs->data);
	return 0;
}

static bool is_zero(const unsigned char *bytes, size_t length)
{
	return !bytes[0] && !memcmp(bytes, bytes + 1, length - 1);
}

static int hole(struct squashfs *squashfs, struct image_error *err)
{
	squashfs->content.holes++;
	return squashfs_data_hole(squashfs->data, err);
}

static int put_block(struct squashfs *squashfs, struct image_error *err)
{
	struct squashfs_block *block = squashfs->block;
	struct content *content = &squashfs->content;

	squashfs->block = NULL;
	if (is_zero(block->bytes, block->length)) {
		squashfs_block_drop(block);
		return hole(squashfs, err);
	}
	if (content->run == SQUASHFS_ABSENT) {
		if (squashfs_data_run(squashfs->data, &content->run, err)) {
			squashfs_block_drop(block);
			return -1;
		}
		block->run = content->run;
	}
	block->plain = squashfs->options.plain_data;
	return squashfs_block_put(block, err);
}

/* Adds to the content; `bytes` NULL: zeros. */
static int add(struct squashfs *squashfs, const unsigned char *bytes, uint64_t length, struct image_error *err)
{
	size_t block_size = squashfs->options.block_size;

	while (length) {
		struct squashfs_block *block = squashfs->small ? squashfs->shared : squashfs->block;

		if (!block && !bytes && length >= block_size) {
			if (hole(squashfs, err))
				return -1;
			length -= block_size;
			squashfs->position += block_size;
			continue;
		}
		if (!block && !(block = squashfs->block = squashfs_block_take(squashfs->data, err)))
			return -1;
		size_t part = block_size - block->length;

		part = part < length ? part : (size_t)length;
		if (bytes)
			memcpy(block->bytes + block->length, bytes, part);
		else
			memset(block->bytes + block->length, 0, part);
		bytes = bytes ? bytes + part : NULL;
		block->length += part;
		length -= part;
		squashfs->position += part;
		if (!squashfs->small && block->length == block_size && put_block(squashfs, err))
			return -1;
	}
	return 0;
}

static int on_slice(void *sink, const struct image_slice *slice, struct image_error *err)
{
	struct squashfs *squashfs = sink;

	/* The reader of the archive has checked that slices rise and end within the size. */
	if (add(squashfs, NULL, slice->offset - squashfs->position, err))
		return -1;
	return add(squashfs, slice->data, slice->length, err);
}

/* What is left of a file that is longer than a block. */
static int put_end(struct squashfs *squashfs, struct image_error *err)
{
	struct squashfs_block *block = squashfs->block;

	if (!squashfs->options.always_fragments || squashfs->options.no_fragments || is_zero(block->bytes, block->length))
		return put_block(squashfs, err);
	squashfs->block = NULL;
	if (make_shared(squashfs, block->length, err)) {
		squashfs_block_drop(block);
		return -1;
	}
	memcpy(squashfs->shared->bytes + squashfs->shared->length, block->bytes, block->length);
	squashfs->shared->length += block->length;
	squashfs_block_drop(block);
	return 0;
}

static int on_file_end(void *sink, struct image_error *err)
{
	struct squashfs *squashfs = sink;

	_Static_assert(sizeof(struct content) <= sizeof(squashfs->record.digest), "content does not fit the record");
	if (add(squashfs, NULL, squashfs->record.size - squashfs->position, err))
		return -1;
	if (squashfs->block && put_end(squashfs, err))
		return -1;
	memcpy(squashfs->record.digest, &squashfs->content, sizeof(squashfs->content));
	return image_records_put(squashfs->records, squashfs->node, &squashfs->record, err);
}

static int on_link(void *sink, uint32_t node, uint32_t primary, struct image_error *err)
{
	(void)sink, (void)node, (void)primary, (void)err; /* the tree knows it */
	return 0;
}

/* The content stays in the image, where nothing refers to it: it happens once in a thousand archives. */
static int on_replace(void *sink, uint32_t node, uint32_t heir, struct image_error *err)
{
	struct squashfs *squashfs = sink;
	struct image_record record;

	if (!heir)
		return 0;
	if (image_records_get(squashfs->records, node, &record, err))
		return -1;
	return image_records_put(squashfs->records, heir, &record, err);
}

static const struct image_sink_operations operations = {
	.folder = on_entry, .special = on_entry, .file = on_file, .slice = on_slice, .file_end = on_file_end,
	.link = on_link, .replace = on_replace,
};

struct image_sink squashfs_sink(struct squashfs *squashfs)
{
	return (struct image_sink){ &operations, squashfs };
}
