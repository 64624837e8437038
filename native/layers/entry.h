/* SPDX-License-Identifier: Apache-2.0 */
/* One file, directory, link or device of an image: all its metadata, without its content. */
#ifndef IMAGE_ENTRY_H
#define IMAGE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "block.h"
#include "error.h"

#define IMAGE_PATH_LONGEST 4095 /* PATH_MAX without its zero byte */
#define IMAGE_NAME_LONGEST 255

/* What of a file is not a hole. */
struct image_extent {
	uint64_t offset, length;
};

struct image_entry {
	/* d, f, l, p, c, b as find(1) prints them (f is a regular file); h: another name of `target`. */
	char kind;
	/* Relative to the root, which is "", without "." or ".." or empty components; may be no UTF-8. */
	const char *path;
	size_t path_length;
	const char *target; /* a symbolic link's text, or a hard link's path in the form of `path` */
	size_t target_length;
	uint32_t mode, uid, gid, major, minor; /* mode: the twelve permission bits */
	uint64_t size;
	int64_t mtime_ns;
	const unsigned char *xattrs; /* packed: see xattrs.h */
	size_t xattrs_length;
	bool sparse; /* then `extents` says what is stored, in rising order */
	const struct image_extent *extents;
	size_t n_extents;
	uint64_t stored; /* bytes of content in the archive */
	const unsigned char *digest; /* SHA-256 of content that is not at hand: of a listing. Else NULL */
	bool absent; /* of a listing: the content is not at hand, nor is its digest */
};

/* Part of a file's content: `length` bytes at `offset`, which lie in `block`. */
struct image_slice {
	const unsigned char *data;
	size_t length;
	uint64_t offset;
	struct image_block *block; /* hold it to keep the bytes */
};

/* The content of the entry that was read last: 1 and the next part; 0: there is no more; -1. */
struct image_content {
	int (*next)(void *context, struct image_slice *slice, struct image_error *err);
	void *context;
};

#endif
