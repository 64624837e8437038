/* A table of metadata: bytes in compressed pieces of 8 KiB, kept in memory until they are written. */
#ifndef SQUASHFS_METADATA_H
#define SQUASHFS_METADATA_H

#include "compress.h"
#include "format.h"

struct squashfs_metadata {
	struct squashfs_compressor *compressor; /* NULL: stored as it is */
	unsigned char *data;                    /* finished pieces */
	size_t length, room;
	unsigned char piece[SQUASHFS_METADATA];
	size_t used; /* always below the size of a piece */
	uint64_t *starts;
	size_t n_starts, starts_room;
};

void squashfs_metadata_free(struct squashfs_metadata *metadata);

/* Where the next byte goes: a piece's start in the table shifted by 16, and the place in the piece. */
static inline uint64_t squashfs_metadata_place(const struct squashfs_metadata *metadata)
{
	return (uint64_t)metadata->length << 16 | metadata->used;
}

int squashfs_metadata_add(struct squashfs_metadata *metadata, const void *data, size_t length,
			  struct image_error *err);
/* Ends the last piece. */
int squashfs_metadata_end(struct squashfs_metadata *metadata, struct image_error *err);

#endif
