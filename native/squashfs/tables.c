/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a squashfs image: writes its tables behind the content of files, and the superblock that says where they are.
 * enroot/importing/produce.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "native/layers/write_at.h"
#include "parts.h"

#define PADDING 4096 /* what loop devices want an image to be a multiple of */

/* Where the tables are in the image. */
struct places {
	uint64_t inodes, folders, fragments, exports, ids, xattrs, end;
};

static int append(struct squashfs *squashfs, const void *bytes, size_t length, uint64_t *at, struct image_error *err)
{
	if (image_write_at(squashfs->fd, bytes, length, *at, err))
		return -1;
	*at += length;
	return 0;
}

static int append_metadata(struct squashfs *squashfs, struct squashfs_metadata *table, uint64_t *at,
			   struct image_error *err)
{
	if (squashfs_metadata_write(table, squashfs->fd, *at, err))
		return -1;
	*at += table->length;
	return 0;
}

/* After the table, whose pieces were written from `*at` on: an index of where they are; `*place` is the index's. */
static int append_table(struct squashfs *squashfs, struct squashfs_metadata *table, uint64_t *at, uint64_t *place,
			struct image_error *err)
{
	uint64_t start = *at;

	if (squashfs_metadata_end(table, err))
		return -1;
	*at += table->length;
	for (size_t i = 0; i < table->n_starts; i++)
		table->starts[i] = htole64(start + table->starts[i]);
	*place = *at;
	return append(squashfs, table->starts, table->n_starts * sizeof(uint64_t), at, err);
}

static int append_fragments(struct squashfs *squashfs, struct places *places, struct image_error *err)
{
	struct squashfs_metadata table = { .compressor = squashfs->options.plain_fragments ? NULL : &squashfs->compressor,
					   .in_file = true, .fd = squashfs->fd, .offset = places->end };
	int result = 0;

	for (size_t i = 0; i < squashfs->n_fragments && !result; i++) {
		unsigned char one[16], *to = one;

		to = put64(to, squashfs_data_start(squashfs->data, squashfs->fragments[i].run));
		to = put32(to, squashfs_data_size(squashfs->data, squashfs->fragments[i].entry));
		put32(to, 0);
		result = squashfs_metadata_add(&table, one, sizeof(one), err);
	}
	if (!result)
		result = append_table(squashfs, &table, &places->end, &places->fragments, err);
	squashfs_metadata_free(&table);
	return result;
}

static uint64_t *places_by_number(const struct squashfs *squashfs)
{
	struct image_spill *spill = image_tree_spill(squashfs->tree);
	uint64_t *exports = image_spill_take(spill, ((size_t)squashfs->n_inodes + 1) * sizeof(uint64_t));

	for (uint32_t i = 0; exports && i < image_tree_count(squashfs->tree); i++) {
		image_spill_tend(spill);
		if (squashfs->numbers[i].number)
			exports[squashfs->numbers[i].number - 1] = htole64(squashfs->numbers[i].place);
	}
	return exports;
}

static int append_exports(struct squashfs *squashfs, struct places *places, struct image_error *err)
{
	struct squashfs_metadata table = { .compressor = squashfs->options.plain_inodes ? NULL : &squashfs->compressor,
					   .in_file = true, .fd = squashfs->fd, .offset = places->end };
	struct image_spill *spill = image_tree_spill(squashfs->tree);
	uint64_t *exports;
	int result;

	places->exports = SQUASHFS_ABSENT;
	if (squashfs->options.no_export)
		return 0;
	exports = places_by_number(squashfs);
	result = exports ? 0 : image_fail_memory(err);
	for (uint32_t i = 0; !result && i < squashfs->n_inodes; i++) {
		image_spill_tend(spill);
		result = squashfs_metadata_add(&table, &exports[i], sizeof(uint64_t), err);
	}
	if (!result)
		result = append_table(squashfs, &table, &places->end, &places->exports, err);
	squashfs_metadata_free(&table);
	image_spill_give(spill, exports);
	return result;
}

/* There is one owner, root. */
static int append_ids(struct squashfs *squashfs, struct places *places, struct image_error *err)
{
	struct squashfs_metadata table = { .in_file = true, .fd = squashfs->fd, .offset = places->end };
	unsigned char root[4] = { 0 };
	int result = squashfs_metadata_add(&table, root, sizeof(root), err);

	if (!result)
		result = append_table(squashfs, &table, &places->end, &places->ids, err);
	squashfs_metadata_free(&table);
	return result;
}

static int append_xattrs(struct squashfs *squashfs, struct places *places, struct image_error *err)
{
	struct xattr_sets *sets = &squashfs->xattrs;
	uint64_t start = places->end;
	unsigned char head[16];

	places->xattrs = SQUASHFS_ABSENT;
	if (!sets->count)
		return 0;
	if (append_metadata(squashfs, &sets->values, &places->end, err) || squashfs_metadata_end(&sets->sets, err))
		return -1;
	for (size_t i = 0; i < sets->sets.n_starts; i++)
		sets->sets.starts[i] = htole64(places->end + sets->sets.starts[i]);
	if (append_metadata(squashfs, &sets->sets, &places->end, err))
		return -1;
	places->xattrs = places->end;
	put32(put32(put64(head, start), sets->count), 0);
	if (append(squashfs, head, sizeof(head), &places->end, err))
		return -1;
	return append(squashfs, sets->sets.starts, sets->sets.n_starts * sizeof(uint64_t), &places->end, err);
}

static uint16_t flags(const struct squashfs *squashfs)
{
	const struct squashfs_options *options = &squashfs->options;
	unsigned char scratch[8];

	return (uint16_t)((options->plain_inodes ? SQUASHFS_NO_INODE_COMPRESSION | SQUASHFS_NO_ID_COMPRESSION : 0) |
			  (options->plain_data ? SQUASHFS_NO_DATA_COMPRESSION : 0) |
			  (options->plain_fragments ? SQUASHFS_NO_FRAGMENT_COMPRESSION : 0) |
			  (options->no_fragments ? SQUASHFS_NO_FRAGMENTS : 0) |
			  (options->always_fragments ? SQUASHFS_ALWAYS_FRAGMENTS : 0) |
			  (options->no_export ? 0 : SQUASHFS_EXPORTABLE) |
			  (options->plain_xattrs ? SQUASHFS_NO_XATTR_COMPRESSION : 0) |
			  (options->no_xattrs ? SQUASHFS_NO_XATTRS : 0) |
			  (squashfs_compressor_options(options->compression, options->level, scratch)
				   ? SQUASHFS_COMPRESSOR_OPTIONS : 0));
}

static int write_superblock(struct squashfs *squashfs, const struct places *places, struct image_error *err)
{
	unsigned char block[SQUASHFS_SUPERBLOCK], *to = block;
	size_t block_size = squashfs->options.block_size;
	int64_t time = squashfs->options.time;

	to = put32(to, SQUASHFS_MAGIC);
	to = put32(to, squashfs->n_inodes);
	to = put32(to, (uint32_t)(time < 0 ? 0 : time > UINT32_MAX ? UINT32_MAX : time));
	to = put32(to, (uint32_t)block_size);
	to = put32(to, (uint32_t)squashfs->n_fragments);
	to = put16(to, (uint16_t)squashfs->options.compression);
	to = put16(to, (uint16_t)__builtin_ctzl(block_size));
	to = put16(to, flags(squashfs));
	to = put16(to, 1); /* owners */
	to = put16(to, 4);
	to = put16(to, 0);
	to = put64(to, squashfs->numbers[IMAGE_ROOT].place);
	to = put64(to, places->end);
	to = put64(to, places->ids);
	to = put64(to, places->xattrs);
	to = put64(to, places->inodes);
	to = put64(to, places->folders);
	to = put64(to, places->fragments);
	put64(to, places->exports);
	return image_write_at(squashfs->fd, block, sizeof(block), 0, err);
}

static int pad(struct squashfs *squashfs, uint64_t end, struct image_error *err)
{
	static const unsigned char zeros[PADDING];
	size_t length = squashfs->options.no_padding ? 0 : -end & (PADDING - 1);

	squashfs->summary.bytes = end + length;
	return image_write_at(squashfs->fd, zeros, length, end, err);
}

int squashfs_finish(struct squashfs *squashfs, struct squashfs_summary *summary, struct image_error *err)
{
	struct places places;

	if (squashfs_put_shared(squashfs, err) || squashfs_data_finish(squashfs->data, &places.end, err) ||
	    image_records_flush(squashfs->records, err))
		return -1;
	places.inodes = squashfs->inodes.offset = places.end;
	if (squashfs_folders(squashfs, err))
		return -1;
	places.end += squashfs->inodes.length;
	places.folders = places.end;
	if (append_metadata(squashfs, &squashfs->folders, &places.end, err) ||
	    append_fragments(squashfs, &places, err) || append_exports(squashfs, &places, err) ||
	    append_ids(squashfs, &places, err) || append_xattrs(squashfs, &places, err) ||
	    pad(squashfs, places.end, err))
		return -1;
	squashfs->summary.inodes = squashfs->n_inodes;
	*summary = squashfs->summary;
	return write_superblock(squashfs, &places, err);
}
