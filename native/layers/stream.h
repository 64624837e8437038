/* SPDX-License-Identifier: Apache-2.0 */
/* The decompressed bytes of one layer, in blocks. Its digests are checked while it is read.
 *
 * Threads read, hash and decompress ahead of the reader; none waits for another longer than a few blocks. A block is
 * full unless it is the last, so a tar's headers never lie across two.
 */
#ifndef IMAGE_STREAM_H
#define IMAGE_STREAM_H

#include <stdatomic.h>

#include "block.h"
#include "error.h"

struct image_stream_request {
	int fd;                 /* of the compressed bytes: a file, a pipe or a socket; closed by the stream */
	unsigned long long length; /* bytes to read; 0: up to the end */
	const char *digest;     /* SHA-256 of the compressed bytes in hexadecimal, or NULL: not checked */
	const char *diff_id;    /* of the decompressed bytes, likewise */
	atomic_ullong *counter; /* grows by the compressed bytes that were read; may be NULL */
	const struct image_interrupt *interrupt; /* of who takes the blocks; may be NULL */
};

struct image_stream;

/* `pool` gives the decompressed blocks (IMAGE_BLOCK_SIZE). Takes the descriptor over, also on failure. */
struct image_stream *image_stream_open(struct image_pool *pool, const struct image_stream_request *request,
				       struct image_error *err);

/* Gives the next block, whose reference is the caller's: 1. 0: the end, and every digest was right. -1. */
int image_stream_next(struct image_stream *stream, struct image_block **block, struct image_error *err);

/* Also before the end, while a pipe or a socket says nothing. */
void image_stream_close(struct image_stream *stream);

#endif
