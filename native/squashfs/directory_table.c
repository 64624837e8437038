/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the directory table of a squashfs image: the names in each directory. tables.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "parts.h"

/* Entries of a listing that share a head: their inodes begin in one piece of the table, and their numbers are near. */
#define RUN_MOST 256
#define HEAD 12
#define ENTRY 8
#define INDEX 12

static uint32_t child(const struct squashfs *squashfs, uint32_t at)
{
	return squashfs->order.children[at];
}

static uint32_t first_of(const struct squashfs *squashfs, uint32_t node)
{
	return squashfs->order.starts[image_tree_node(squashfs->tree, node)->link];
}

static uint32_t end_of(const struct squashfs *squashfs, uint32_t node)
{
	return squashfs->order.starts[image_tree_node(squashfs->tree, node)->link + 1];
}

/* Numbers near each other for the children of a folder; counts links. */
static void number_children(struct squashfs *squashfs, uint32_t node)
{
	for (uint32_t i = first_of(squashfs, node); i < end_of(squashfs, node); i++) {
		uint32_t one = inode_of(squashfs, child(squashfs, i));
		struct inode *inode = &squashfs->numbers[one];

		image_spill_tend(image_tree_spill(squashfs->tree));
		if (!inode->number)
			inode->number = ++squashfs->n_inodes;
		if (image_tree_node(squashfs->tree, one)->kind == 'd') {
			inode->links = 2;
			squashfs->numbers[node].links++;
		} else {
			inode->links++;
		}
	}
}

/* How many entries from `at` on can share a head with it, which is to be written now. A run does not go far into the next
 * piece of the table: each piece gets a head that the index can lead to. */
static uint32_t run_length(const struct squashfs *squashfs, uint32_t at, uint32_t end)
{
	const struct inode *first = &squashfs->numbers[inode_of(squashfs, child(squashfs, at))];
	size_t bytes = squashfs->folders.used + HEAD;
	uint32_t n = 0;

	for (; n < RUN_MOST && at + n < end && bytes < SQUASHFS_METADATA; n++) {
		const struct inode *one = &squashfs->numbers[inode_of(squashfs, child(squashfs, at + n))];
		int64_t distance = (int64_t)one->number - first->number;

		if (one->place >> 16 != first->place >> 16 || distance > INT16_MAX || distance < -INT16_MAX)
			break;
		bytes += ENTRY + image_tree_node(squashfs->tree, child(squashfs, at + n))->name_length;
	}
	return n ? n : 1;
}

/* The listing goes on in another piece of the table, `length` bytes from its beginning. */
static int add_index(struct squashfs *squashfs, uint32_t node, size_t length, struct image_error *err)
{
	const struct image_node *one = image_tree_node(squashfs->tree, node);
	size_t size = INDEX + one->name_length;
	unsigned char *to;

	if (squashfs->n_index == UINT16_MAX)
		return 0;
	if (squashfs->index_capacity - squashfs->index_length < size) {
		size_t capacity = 2 * squashfs->index_capacity + size;
		unsigned char *larger = realloc(squashfs->index, capacity);

		if (!larger)
			return image_fail_memory(err);
		squashfs->index = larger;
		squashfs->index_capacity = capacity;
	}
	to = squashfs->index + squashfs->index_length;
	to = put32(to, (uint32_t)length);
	to = put32(to, (uint32_t)squashfs->folders.length);
	to = put32(to, one->name_length - 1u);
	memcpy(to, image_tree_name(squashfs->tree, node), one->name_length);
	squashfs->index_length += size;
	squashfs->n_index++;
	return 0;
}

static int add_entry(struct squashfs *squashfs, uint32_t node, uint32_t base, struct image_error *err)
{
	const struct image_node *one = image_tree_node(squashfs->tree, node);
	const struct inode *inode = &squashfs->numbers[inode_of(squashfs, node)];
	unsigned char bytes[ENTRY + IMAGE_NAME_LONGEST], *to = bytes;

	to = put16(to, (uint16_t)inode->place);
	to = put16(to, (uint16_t)(inode->number - base));
	to = put16(to, (uint16_t)type_of(one->kind));
	to = put16(to, (uint16_t)(one->name_length - 1));
	memcpy(to, image_tree_name(squashfs->tree, node), one->name_length);
	return squashfs_metadata_add(&squashfs->folders, bytes, ENTRY + one->name_length, err);
}

/* Writes the listing of a folder whose children have their inodes; gives its length. An index says where each piece of the
 * table begins in it: without one, a reader goes through half of the listing for each name. */
static int list(struct squashfs *squashfs, uint32_t node, size_t *length, struct image_error *err)
{
	uint32_t end = end_of(squashfs, node);

	size_t piece = squashfs->folders.length;

	*length = 0;
	squashfs->index_length = squashfs->n_index = 0;
	for (uint32_t at = first_of(squashfs, node), n; at < end; at += n) {
		const struct inode *first = &squashfs->numbers[inode_of(squashfs, child(squashfs, at))];
		unsigned char head[HEAD];

		if (squashfs->folders.length != piece && add_index(squashfs, child(squashfs, at), *length, err))
			return -1;
		piece = squashfs->folders.length;
		n = run_length(squashfs, at, end);
		put32(put32(put32(head, n - 1), (uint32_t)(first->place >> 16)), first->number);
		if (squashfs_metadata_add(&squashfs->folders, head, HEAD, err))
			return -1;
		*length += HEAD;
		for (uint32_t i = at; i < at + n; i++) {
			image_spill_tend(image_tree_spill(squashfs->tree));
			if (add_entry(squashfs, child(squashfs, i), first->number, err))
				return -1;
			*length += ENTRY + image_tree_node(squashfs->tree, child(squashfs, i))->name_length;
		}
	}
	if (*length > UINT32_MAX - 3)
		return image_fail(err, IMAGE_FAULT_SOURCE, "", "a directory's names are longer than squashfs has room for");
	return 0;
}

/* The folder's listing and its own inode, once all below it is there. */
static int leave(struct squashfs *squashfs, uint32_t node, struct image_error *err)
{
	uint64_t listing;
	size_t length;

	for (uint32_t i = first_of(squashfs, node); i < end_of(squashfs, node); i++) {
		uint32_t one = inode_of(squashfs, child(squashfs, i));

		image_spill_tend(image_tree_spill(squashfs->tree));
		if (image_tree_node(squashfs->tree, one)->kind != 'd' && squashfs->numbers[one].place == SQUASHFS_ABSENT &&
		    squashfs_inode(squashfs, one, 0, 0, err))
			return -1;
	}
	listing = squashfs_metadata_place(&squashfs->folders);
	if (list(squashfs, node, &length, err))
		return -1;
	return squashfs_inode(squashfs, node, listing, length, err);
}

/* Numbers all inodes: those of a folder's children follow each other. */
static int number_all(struct squashfs *squashfs, struct image_error *err)
{
	uint32_t count = image_tree_count(squashfs->tree);
	struct image_spill *spill = image_tree_spill(squashfs->tree);

	squashfs->numbers = image_spill_take(spill, (size_t)count * sizeof(struct inode));
	if (!squashfs->numbers)
		return image_fail_memory(err);
	if (image_order_new(&squashfs->order, squashfs->tree, err))
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		image_spill_tend(spill);
		squashfs->numbers[i].place = SQUASHFS_ABSENT;
	}
	squashfs->numbers[IMAGE_ROOT].number = ++squashfs->n_inodes;
	squashfs->numbers[IMAGE_ROOT].links = 2;
	return 0;
}

typedef int (*visitor)(struct squashfs *squashfs, uint32_t node, struct image_error *err);

static int number_folder(struct squashfs *squashfs, uint32_t node, struct image_error *err)
{
	(void)err;
	number_children(squashfs, node);
	return 0;
}

/* All folders: `enter` before what is in them, `exit` after. */
static int walk(struct squashfs *squashfs, visitor enter, visitor exit, struct image_error *err)
{
	/* As deep as a path of 4,095 bytes can be. */
	struct { uint32_t node, next; } stack[IMAGE_PATH_LONGEST / 2 + 2];
	size_t depth = 0;

	stack[depth].node = IMAGE_ROOT;
	stack[depth++].next = first_of(squashfs, IMAGE_ROOT);
	if (enter && enter(squashfs, IMAGE_ROOT, err))
		return -1;
	while (depth) {
		uint32_t at = stack[depth - 1].next++, node;

		if (at == end_of(squashfs, stack[depth - 1].node)) {
			depth--;
			if (exit && exit(squashfs, stack[depth].node, err))
				return -1;
			continue;
		}
		node = child(squashfs, at);
		if (image_tree_node(squashfs->tree, node)->kind != 'd')
			continue;
		if (enter && enter(squashfs, node, err))
			return -1;
		stack[depth].node = node;
		stack[depth++].next = first_of(squashfs, node);
	}
	return 0;
}

int squashfs_folders(struct squashfs *squashfs, struct image_error *err)
{
	struct squashfs_compressor *compressor = squashfs->options.plain_inodes ? NULL : &squashfs->compressor;
	struct image_spill *spill = image_tree_spill(squashfs->tree);

	squashfs->inodes.in_file = true;
	squashfs->inodes.fd = squashfs->fd;
	squashfs->folders.spill = squashfs->xattrs.values.spill = squashfs->xattrs.sets.spill = spill;
	squashfs->inodes.compressor = squashfs->folders.compressor = compressor;
	squashfs->xattrs.values.compressor = squashfs->xattrs.sets.compressor =
		squashfs->options.plain_xattrs ? NULL : &squashfs->compressor;
	if (number_all(squashfs, err) || walk(squashfs, number_folder, NULL, err) || walk(squashfs, NULL, leave, err))
		return -1;
	return squashfs_metadata_end(&squashfs->inodes, err) || squashfs_metadata_end(&squashfs->folders, err) ? -1 : 0;
}
