/* SPDX-License-Identifier: Apache-2.0 */
/* The first part of a squashfs image: the content of files, in blocks that several threads compress.
 *
 * Blocks lie in the image in the order in which they were put, whichever thread is done first: the image is the same
 * with any number of threads. Memory is bounded by the blocks that are under way.
 */
#ifndef SQUASHFS_DATA_H
#define SQUASHFS_DATA_H

#include <stdatomic.h>

#include "native/layers/spill.h"
#include "native/layers/thread_pool.h"
#include "compress.h"
#include "format.h"

struct squashfs_data;

struct squashfs_data_request {
	int fd;
	uint64_t offset; /* where the first block goes */
	size_t block_size;
	enum squashfs_compression compression;
	int level;
	unsigned jobs;
	struct image_spill *spill; /* for what is known of each block, longer than the data is used */
};

struct squashfs_block {
	struct image_job job;
	struct squashfs_data *data;
	unsigned char *bytes, *compressed;
	size_t length;
	bool plain;        /* not to be compressed */
	uint64_t entry;    /* its place among all blocks */
	uint64_t sequence; /* among those that are written */
	uint64_t run;      /* of which it is the first; SQUASHFS_ABSENT: of none */
	uint32_t size;     /* as it is stored */
	struct squashfs_block *next;
};

struct squashfs_data *squashfs_data_new(const struct squashfs_data_request *request, struct image_error *err);
void squashfs_data_free(struct squashfs_data *data);

/* An empty block to fill; waits while too many are under way. NULL: a thread has failed. */
struct squashfs_block *squashfs_block_take(struct squashfs_data *data, struct image_error *err);
/* Gives back one that is not needed. */
void squashfs_block_drop(struct squashfs_block *block);

/* Takes the block over, also on failure. */
int squashfs_block_put(struct squashfs_block *block, struct image_error *err);

/* A block of zeros that is not stored: an entry with the size 0. */
int squashfs_data_hole(struct squashfs_data *data, struct image_error *err);

/* The number of entries so far, and a new number for a run of blocks that lie together. */
uint64_t squashfs_data_entries(const struct squashfs_data *data);
int squashfs_data_run(struct squashfs_data *data, uint64_t *run, struct image_error *err);

/* Waits for all blocks. After that the following tell, and `*end` is the offset behind the last. */
int squashfs_data_finish(struct squashfs_data *data, uint64_t *end, struct image_error *err);
uint32_t squashfs_data_size(const struct squashfs_data *data, uint64_t entry); /* with SQUASHFS_BLOCK_PLAIN */
uint64_t squashfs_data_start(const struct squashfs_data *data, uint64_t run);

#endif
