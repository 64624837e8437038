/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the extended attributes of files and writes their table in a squashfs image. squashfs.c
 * and inodes.c call it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "native/layers/xattrs.h"
#include "parts.h"

/* Sets that are remembered, so that the next file with the same one shares it. */
#define KEPT_LONGEST 1024

static const char *const prefixes[] = { "user.", "trusted.", "security." };

/* The number of the prefix, and what follows it; -1: squashfs has no place for it. */
static int kind_of(const struct image_xattr *xattr, const char **rest, size_t *rest_length)
{
	for (int i = 0; i < (int)(sizeof(prefixes) / sizeof(prefixes[0])); i++) {
		size_t length = strlen(prefixes[i]);

		if (xattr->name_length > length && !memcmp(xattr->name, prefixes[i], length)) {
			*rest = xattr->name + length;
			*rest_length = xattr->name_length - length;
			return i;
		}
	}
	return -1;
}

static void lose(struct squashfs *squashfs, uint32_t node, const struct image_xattr *xattr)
{
	char path[IMAGE_PATH_LONGEST + 1] = "";

	if (squashfs->summary.lost++)
		return;
	image_tree_path(squashfs->tree, node, path, sizeof(path));
	snprintf(squashfs->summary.first, sizeof(squashfs->summary.first), "%.180s: %.*s", path,
		 xattr->name_length < 60 ? (int)xattr->name_length : 60, xattr->name);
}

static uint32_t hash(const unsigned char *data, size_t length)
{
	uint32_t h = 0x811c9dc5u;

	for (size_t i = 0; i < length; i++)
		h = (h ^ data[i]) * 0x01000193u;
	return (h ^ h >> 16) % SETS_KEPT;
}

static void keep(struct xattr_sets *sets, uint32_t place, const unsigned char *packed, size_t length)
{
	unsigned char *copy = length <= KEPT_LONGEST ? malloc(length) : NULL;

	if (!copy)
		return;
	memcpy(copy, packed, length);
	free(sets->kept[place].data);
	sets->kept[place].data = copy;
	sets->kept[place].length = length;
	sets->kept[place].number = sets->count - 1;
}

static int add_set(struct xattr_sets *sets, uint64_t place, uint32_t count, uint32_t size, struct image_error *err)
{
	unsigned char one[16];

	put32(put32(put64(one, place), count), size);
	sets->count++;
	return squashfs_metadata_add(&sets->sets, one, sizeof(one), err);
}

int squashfs_xattrs_add(struct squashfs *squashfs, uint32_t node, const unsigned char *packed, size_t length,
			uint32_t *number, struct image_error *err)
{
	struct xattr_sets *sets = &squashfs->xattrs;
	uint32_t slot = hash(packed, length), count = 0, size = 0;
	uint64_t place = squashfs_metadata_place(&sets->values);
	struct image_xattr xattr;

	*number = SQUASHFS_NONE;
	if (sets->kept[slot].data && sets->kept[slot].length == length && !memcmp(sets->kept[slot].data, packed, length)) {
		*number = sets->kept[slot].number;
		return 0;
	}
	for (size_t offset = 0; image_xattrs_next(packed, length, &offset, &xattr);) {
		unsigned char head[4];
		const char *rest;
		size_t rest_length;
		int kind = kind_of(&xattr, &rest, &rest_length);

		if (kind < 0) {
			lose(squashfs, node, &xattr);
			continue;
		}
		put16(put16(head, (uint16_t)kind), (uint16_t)rest_length);
		if (squashfs_metadata_add(&sets->values, head, sizeof(head), err) ||
		    squashfs_metadata_add(&sets->values, rest, rest_length, err))
			return -1;
		put32(head, (uint32_t)xattr.value_length);
		if (squashfs_metadata_add(&sets->values, head, sizeof(head), err) ||
		    squashfs_metadata_add(&sets->values, xattr.value, xattr.value_length, err))
			return -1;
		count++;
		/* What listxattr(2) needs: whole names with their zero bytes. */
		size += (uint32_t)xattr.name_length + 1;
	}
	if (!count)
		return 0;
	*number = sets->count;
	if (add_set(sets, place, count, size, err))
		return -1;
	keep(sets, slot, packed, length);
	return 0;
}

void squashfs_xattrs_free(struct xattr_sets *sets)
{
	squashfs_metadata_free(&sets->values);
	squashfs_metadata_free(&sets->sets);
	for (size_t i = 0; i < SETS_KEPT; i++)
		free(sets->kept[i].data);
}
