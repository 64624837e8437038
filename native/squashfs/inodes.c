/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the inode of one file into the inode table of a squashfs image. directory_table.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "parts.h"

#define NS 1000000000

/* Longest inode but for a file's list of blocks and a link's text. */
#define INODE_LONGEST 64

static uint32_t seconds(const struct squashfs *squashfs, const struct image_record *record)
{
	/* Rounded down, also before 1970, as every tool that extracts archives does. */
	int64_t time = record->mtime_ns / NS - (record->mtime_ns % NS < 0);

	time = time > squashfs->options.newest ? squashfs->options.newest : time;
	return (uint32_t)(time < 0 ? 0 : time > UINT32_MAX ? UINT32_MAX : time);
}

static unsigned char *put_head(const struct squashfs *squashfs, unsigned char *to, enum squashfs_type type,
			       bool extended, const struct image_record *record, uint32_t number)
{
	to = put16(to, (uint16_t)(type + (extended ? SQUASHFS_EXTENDED : 0)));
	to = put16(to, (uint16_t)record->mode);
	to = put16(to, 0); /* owners: the first of the table */
	to = put16(to, 0);
	to = put32(to, seconds(squashfs, record));
	return put32(to, number);
}

static int add_blocks(struct squashfs *squashfs, const struct content *content, uint64_t count, struct image_error *err)
{
	for (uint64_t i = 0; i < count; i++) {
		unsigned char size[4];

		put32(size, squashfs_data_size(squashfs->data, content->entry + i));
		if (squashfs_metadata_add(&squashfs->inodes, size, sizeof(size), err))
			return -1;
	}
	return 0;
}

static int file(struct squashfs *squashfs, const struct inode *inode, const struct image_record *record, uint32_t xattrs,
		struct image_error *err)
{
	unsigned char bytes[INODE_LONGEST], *to;
	size_t block_size = squashfs->options.block_size;
	struct content content;
	uint64_t start, blocks = record->size / block_size, sparse;
	bool extended;

	memcpy(&content, record->digest, sizeof(content));
	if (content.fragment == SQUASHFS_NONE && record->size % block_size)
		blocks++;
	sparse = (uint64_t)content.holes * block_size;
	sparse = sparse < record->size ? sparse : record->size - (record->size > 0);
	start = content.run == SQUASHFS_ABSENT ? 0 : squashfs_data_start(squashfs->data, content.run);
	extended = inode->links > 1 || xattrs != SQUASHFS_NONE || sparse || start > UINT32_MAX || record->size > UINT32_MAX;
	to = put_head(squashfs, bytes, SQUASHFS_FILE, extended, record, inode->number);
	if (extended) {
		to = put64(to, start);
		to = put64(to, record->size);
		to = put64(to, sparse);
		to = put32(to, inode->links);
		to = put32(to, content.fragment);
		to = put32(to, content.fragment_offset);
		to = put32(to, xattrs);
	} else {
		to = put32(to, (uint32_t)start);
		to = put32(to, content.fragment);
		to = put32(to, content.fragment_offset);
		to = put32(to, (uint32_t)record->size);
	}
	if (squashfs_metadata_add(&squashfs->inodes, bytes, (size_t)(to - bytes), err))
		return -1;
	return add_blocks(squashfs, &content, blocks, err);
}

static int folder(struct squashfs *squashfs, uint32_t node, const struct image_record *record, uint32_t xattrs,
		  uint64_t listing, size_t length, struct image_error *err)
{
	const struct inode *inode = &squashfs->numbers[node];
	uint32_t parent = node ? squashfs->numbers[image_tree_node(squashfs->tree, node)->parent].number
			       : squashfs->n_inodes + 1;
	unsigned char bytes[INODE_LONGEST], *to;
	uint32_t size = (uint32_t)length + 3; /* as if "." and ".." were in it */
	bool extended = xattrs != SQUASHFS_NONE || size > UINT16_MAX || squashfs->n_index;

	to = put_head(squashfs, bytes, SQUASHFS_FOLDER, extended, record, inode->number);
	if (extended) {
		to = put32(to, inode->links);
		to = put32(to, size);
		to = put32(to, (uint32_t)(listing >> 16));
		to = put32(to, parent);
		to = put16(to, squashfs->n_index);
		to = put16(to, (uint16_t)listing);
		to = put32(to, xattrs);
	} else {
		to = put32(to, (uint32_t)(listing >> 16));
		to = put32(to, inode->links);
		to = put16(to, (uint16_t)size);
		to = put16(to, (uint16_t)listing);
		to = put32(to, parent);
	}
	if (squashfs_metadata_add(&squashfs->inodes, bytes, (size_t)(to - bytes), err))
		return -1;
	return squashfs_metadata_add(&squashfs->inodes, squashfs->index, squashfs->index_length, err);
}

static int special(struct squashfs *squashfs, char kind, const struct inode *inode, const struct image_record *record,
		   uint32_t xattrs, struct image_error *err)
{
	unsigned char bytes[INODE_LONGEST], *to;
	bool extended = xattrs != SQUASHFS_NONE;

	to = put_head(squashfs, bytes, type_of(kind), extended, record, inode->number);
	to = put32(to, inode->links);
	if (kind == 'l')
		to = put32(to, record->target_length);
	else if (kind != 'p') /* as Linux packs a device's number */
		to = put32(to, (record->minor & 0xff) | record->major << 8 | (record->minor & ~0xffu) << 12);
	if (squashfs_metadata_add(&squashfs->inodes, bytes, (size_t)(to - bytes), err))
		return -1;
	if (kind == 'l' && squashfs_metadata_add(&squashfs->inodes, squashfs->extra, record->target_length, err))
		return -1;
	put32(bytes, xattrs);
	return extended ? squashfs_metadata_add(&squashfs->inodes, bytes, 4, err) : 0;
}

int squashfs_inode(struct squashfs *squashfs, uint32_t node, uint64_t listing, size_t listing_length,
		   struct image_error *err)
{
	struct inode *inode = &squashfs->numbers[node];
	char kind = image_tree_node(squashfs->tree, node)->kind;
	struct image_record record;
	uint32_t xattrs = SQUASHFS_NONE;

	if (image_records_get(squashfs->records, node, &record, err))
		return -1;
	if (!record.known)
		image_record_complete(&record, node);
	if (image_records_extra(squashfs->records, &record, &squashfs->extra, &squashfs->extra_capacity, err))
		return -1;
	if (!squashfs->options.no_xattrs && record.xattrs_length &&
	    squashfs_xattrs_add(squashfs, node, squashfs->extra + record.target_length, record.xattrs_length, &xattrs, err))
		return -1;
	inode->place = squashfs_metadata_place(&squashfs->inodes);
	if (kind == 'd')
		return folder(squashfs, node, &record, xattrs, listing, listing_length, err);
	if (kind == 'f')
		return file(squashfs, inode, &record, xattrs, err);
	return special(squashfs, kind, inode, &record, xattrs, err);
}
