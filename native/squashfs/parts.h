/* SPDX-License-Identifier: Apache-2.0 */
/* Structs and functions that only the files of native/squashfs use. */
#ifndef SQUASHFS_PARTS_H
#define SQUASHFS_PARTS_H

#include "native/layers/order.h"
#include "data.h"
#include "metadata.h"
#include "squashfs.h"

/* Where a file's content is; kept in the record, in the place of its digest. */
struct content {
	uint64_t entry; /* of its first block */
	uint64_t run;   /* SQUASHFS_ABSENT: no block is stored */
	uint32_t fragment, fragment_offset;
	uint32_t holes; /* blocks that are not stored */
};

/* What is known of an inode while the tables are written; by node. */
struct inode {
	uint64_t place; /* in the table of inodes */
	uint32_t number, links;
};

/* Ends of files that lie together. */
struct fragment {
	uint64_t entry, run;
};

#define SETS_KEPT 64

/* Sets of extended attributes. */
struct xattr_sets {
	struct squashfs_metadata values;
	struct squashfs_metadata sets; /* 16 bytes each */
	uint32_t count;
	struct { unsigned char *data; size_t length; uint32_t number; } kept[SETS_KEPT]; /* the last ones, by hash */
};

struct squashfs {
	struct image_tree *tree;
	struct image_records *records;
	int fd;
	struct squashfs_options options;
	struct squashfs_data *data;

	/* The file whose content is coming. */
	uint32_t node;
	struct image_record record;
	struct content content;
	uint64_t position;
	struct squashfs_block *block; /* of a file longer than a block */
	bool small;                   /* all of it goes into the fragment */

	struct squashfs_block *shared; /* the fragment that is being filled */
	struct fragment *fragments; /* in the tree's spill */
	size_t n_fragments, fragments_capacity;

	struct squashfs_compressor compressor; /* of metadata */
	struct squashfs_metadata inodes, folders;
	struct xattr_sets xattrs;
	struct inode *numbers; /* in the tree's spill */
	uint32_t n_inodes;
	struct image_order order;
	unsigned char *extra; /* target and attributes of the record */
	size_t extra_capacity;
	unsigned char *index; /* of the listing that is written: where its pieces begin */
	size_t index_length, index_capacity;
	uint16_t n_index;
	struct squashfs_summary summary;
};

/* squashfs.c: the ends of files that lie together so far. */
int squashfs_put_shared(struct squashfs *squashfs, struct image_error *err);

/* xattr_table.c: the number of the set of attributes, SQUASHFS_NONE: it has none. */
int squashfs_xattrs_add(struct squashfs *squashfs, uint32_t node, const unsigned char *packed, size_t length,
			uint32_t *number, struct image_error *err);
void squashfs_xattrs_free(struct xattr_sets *sets);

/* inodes.c: writes the inode of a node that has none yet. A folder's listing begins at `listing`. */
int squashfs_inode(struct squashfs *squashfs, uint32_t node, uint64_t listing, size_t listing_length,
		   struct image_error *err);

/* directory_table.c: all inodes and listings. */
int squashfs_folders(struct squashfs *squashfs, struct image_error *err);

/* The node that stands for all names of a file. */
static inline uint32_t inode_of(const struct squashfs *squashfs, uint32_t node)
{
	const struct image_node *one = image_tree_node(squashfs->tree, node);

	return one->kind == 'd' ? node : one->link;
}

static inline enum squashfs_type type_of(char kind)
{
	switch (kind) {
	case 'd':
		return SQUASHFS_FOLDER;
	case 'l':
		return SQUASHFS_SYMLINK;
	case 'b':
		return SQUASHFS_BLOCK_DEVICE;
	case 'c':
		return SQUASHFS_CHARACTER_DEVICE;
	case 'p':
		return SQUASHFS_FIFO;
	default:
		return SQUASHFS_FILE;
	}
}

#endif
