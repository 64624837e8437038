/* SPDX-License-Identifier: Apache-2.0 */
/* A metadata table of a squashfs image, such as that of inodes, in compressed pieces of 8 KiB.
 *
 * If it has a file (`fd`, from `offset` on), pieces are written there as they come. Otherwise they are kept in
 * memory, or in an unnamed file if the table is long, until the table is written.
 */
#ifndef SQUASHFS_METADATA_H
#define SQUASHFS_METADATA_H

#include "native/layers/spill.h"
#include "compress.h"
#include "format.h"

struct squashfs_metadata {
	struct squashfs_compressor *compressor; /* NULL: stored as it is */
	struct image_spill *spill;              /* who makes the file without a name; NULL: all stays in memory */
	unsigned char *data;                    /* finished pieces, from `written` on */
	size_t capacity;
	uint64_t length, written; /* bytes of all pieces; of those that are in a file */
	bool in_file, nameless;
	int fd;
	uint64_t offset;
	unsigned char piece[SQUASHFS_METADATA];
	size_t used; /* always below the size of a piece */
	uint64_t *starts;
	size_t n_starts, starts_capacity;
};

void squashfs_metadata_free(struct squashfs_metadata *metadata);

/* Where the next byte goes: a piece's start in the table shifted by 16, and the place in the piece. */
static inline uint64_t squashfs_metadata_place(const struct squashfs_metadata *metadata)
{
	return (uint64_t)metadata->length << 16 | metadata->used;
}

int squashfs_metadata_add(struct squashfs_metadata *metadata, const void *data, size_t length,
			  struct image_error *err);
/* Ends the last piece; all is in the file if there is one with a name. */
int squashfs_metadata_end(struct squashfs_metadata *metadata, struct image_error *err);
/* Writes a table that is in no file, or in one without a name, into `fd`. */
int squashfs_metadata_write(struct squashfs_metadata *metadata, int fd, uint64_t offset, struct image_error *err);

#endif
