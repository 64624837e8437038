/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes in one piece of memory: for each, by rising name, the length of the name (2 bytes), of
 * the value (4 bytes), both in the machine's order, the name without a zero byte, the value. */
#ifndef IMAGE_XATTRS_H
#define IMAGE_XATTRS_H

#include <stdbool.h>
#include <stddef.h>

/* XATTR_SIZE_MAX of Linux for a value; for all of a file what tar writers take as their limit too. */
#define IMAGE_XATTRS_LONGEST ((size_t)1 << 20)

struct image_xattrs {
	unsigned char *data;
	size_t length, capacity;
};

struct image_xattr {
	const char *name; /* no zero byte at its end */
	size_t name_length;
	const unsigned char *value;
	size_t value_length;
};

void image_xattrs_clear(struct image_xattrs *xattrs); /* keeps the memory */
void image_xattrs_free(struct image_xattrs *xattrs);

/* Adds at its place, or replaces the value. 0; -1: no memory or longer than the limits. */
int image_xattrs_set(struct image_xattrs *xattrs, const char *name, size_t name_length, const void *value,
		     size_t value_length);
void image_xattrs_remove(struct image_xattrs *xattrs, const char *name, size_t name_length);

/* The attribute at `*offset`, which moves to the next; false: there is none. */
bool image_xattrs_next(const unsigned char *data, size_t length, size_t *offset, struct image_xattr *found);

/* Whether the attribute belongs to a tree, and not to the machine that the tree lay on: overlayfs keeps its
 * notes in some, SELinux labels by the policy of the running system, IMA and EVM sign for one machine. */
bool image_xattr_is_kept(const char *name, size_t name_length);

#endif
