/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the merged layers of an image as a squashfs 4.0 file, without unpacking them and without privileges.
 *
 * Content is compressed and written as it comes; the tables of files and directories follow at the end. All files
 * belong to root. Times are whole seconds between 1970 and 2106, which is all that squashfs has.
 */
#ifndef SQUASHFS_H
#define SQUASHFS_H

#include "native/layers/records.h"
#include "native/layers/sink.h"
#include "native/layers/tree.h"
#include "compress.h"

struct squashfs_options {
	enum squashfs_compression compression;
	int level;
	size_t block_size; /* a power of two from 4 KiB to 1 MiB */
	unsigned jobs;     /* threads that compress */
	bool plain_inodes, plain_data, plain_fragments, plain_xattrs;
	bool no_fragments;     /* no end of a file shares a block with others */
	bool always_fragments; /* also ends of files longer than a block */
	bool no_xattrs, no_export, no_padding;
	int64_t time;   /* of the image itself, in seconds */
	int64_t newest; /* later times of files become this; INT64_MAX: none do */
};

struct squashfs;

/* Writes to `fd` from its beginning; it stays the caller's. */
struct squashfs *squashfs_new(struct image_tree *tree, struct image_records *records, int fd,
			      const struct squashfs_options *options, struct image_error *err);
void squashfs_free(struct squashfs *squashfs);
struct image_sink squashfs_sink(struct squashfs *squashfs);

struct squashfs_summary {
	unsigned long long bytes; /* of the image */
	unsigned long long inodes;
	unsigned long long lost; /* attributes that squashfs has no place for */
	char first[256];         /* "PATH: NAME" of one */
};

/* After the merge. The tree can only be read afterwards, not searched. */
int squashfs_finish(struct squashfs *squashfs, struct squashfs_summary *summary, struct image_error *err);

#endif
