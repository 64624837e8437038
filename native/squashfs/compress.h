/* SPDX-License-Identifier: Apache-2.0 */
/* Compresses blocks of a squashfs image with lz4, zstd or zlib. Each thread has its own compressor. */
#ifndef SQUASHFS_COMPRESS_H
#define SQUASHFS_COMPRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "native/layers/error.h"

/* As the superblock numbers them. */
enum squashfs_compression { SQUASHFS_GZIP = 1, SQUASHFS_LZ4 = 5, SQUASHFS_ZSTD = 6 };

struct squashfs_compressor {
	enum squashfs_compression compression;
	int level;
	void *state;
};

/* `level`: of zstd 1 to 22, of gzip 1 to 9, of lz4 1 (fast) or 9 to 12 (high compression). 0, or -1. */
int squashfs_compressor_begin(struct squashfs_compressor *compressor, enum squashfs_compression compression,
			      int level, struct image_error *err);
void squashfs_compressor_end(struct squashfs_compressor *compressor);

/* Bytes that `out` must have room for. */
size_t squashfs_compressor_bound(enum squashfs_compression compression, size_t length);

/* Gives the compressed length; 0: it would not be smaller, store it as it is. */
size_t squashfs_compressor_run(struct squashfs_compressor *compressor, const void *in, size_t length, void *out);

/* What the image says about the compressor; `options` has room for 8 bytes. 0: nothing. */
size_t squashfs_compressor_options(enum squashfs_compression compression, int level, unsigned char *options);

#endif
