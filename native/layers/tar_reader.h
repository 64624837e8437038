/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a tar reader. Only the files tar*.c use it. */
#ifndef IMAGE_TAR_READER_H
#define IMAGE_TAR_READER_H

#include "tar.h"
#include "tar_header.h"

struct text {
	char *data;
	size_t length, capacity;
};

struct image_tar {
	struct image_input input;
	struct image_block *block;
	size_t at; /* in the block */
	uint64_t left, padding; /* of the current member's content */
	size_t extent;
	uint64_t extent_done;
	bool ended;
	struct tar_attributes attributes;
	struct text global, local, long_name, long_link;
	bool has_name, has_link;
	struct image_entry entry;
	char path[IMAGE_PATH_LONGEST + 1], target[IMAGE_PATH_LONGEST + 1];
};

/* tar_records.c: fail, naming the entry as far as it is known. */
int tar_malformed(struct image_tar *tar, struct image_error *err, const char *what);
int tar_cut_off(struct image_error *err);

/* tar_records.c: make sure that there are bytes at `at`; read the next 512. 1. 0: the input has ended. -1. */
int tar_fill(struct image_tar *tar, struct image_error *err);
int tar_next_record(struct image_tar *tar, const void **record, struct image_error *err);

/* tar_sparse.c: read the map of a sparse file, in GNU's own form and in those of pax, and check it. */
int tar_gnu_map(struct image_tar *tar, const struct tar_header *header, struct image_error *err);
int tar_pax_map(struct image_tar *tar, struct image_error *err);

#endif
