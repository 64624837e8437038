/* SPDX-License-Identifier: Apache-2.0 */
/* Compresses one block of a squashfs image with lz4, zstd or zlib. data.c, metadata.c and squashfs.c call it. */
#define _GNU_SOURCE
#include "compress.h"

#include <lz4.h>
#include <lz4hc.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#include "format.h"

#define GZIP_WINDOW 15
#define ZSTD_DEFAULT 15 /* what a reader assumes where the image says nothing */

static z_stream *gzip_new(int level)
{
	z_stream *stream = calloc(1, sizeof(*stream));

	if (stream && deflateInit2(stream, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
		free(stream);
		return NULL;
	}
	return stream;
}

int squashfs_compressor_begin(struct squashfs_compressor *compressor, enum squashfs_compression compression,
			      int level, struct image_error *err)
{
	*compressor = (struct squashfs_compressor){ compression, level, NULL };
	switch (compression) {
	case SQUASHFS_GZIP:
		compressor->state = gzip_new(level);
		break;
	case SQUASHFS_LZ4:
		compressor->state = calloc(1, (size_t)(level > 1 ? LZ4_sizeofStateHC() : LZ4_sizeofState()));
		break;
	case SQUASHFS_ZSTD:
		compressor->state = ZSTD_createCCtx();
		if (compressor->state)
			ZSTD_CCtx_setParameter(compressor->state, ZSTD_c_compressionLevel, level);
	}
	return compressor->state ? 0 : image_fail_memory(err);
}

void squashfs_compressor_end(struct squashfs_compressor *compressor)
{
	if (compressor->compression == SQUASHFS_ZSTD) {
		ZSTD_freeCCtx(compressor->state);
	} else {
		if (compressor->compression == SQUASHFS_GZIP && compressor->state)
			deflateEnd(compressor->state);
		free(compressor->state);
	}
	compressor->state = NULL;
}

size_t squashfs_compressor_bound(enum squashfs_compression compression, size_t length)
{
	switch (compression) {
	case SQUASHFS_GZIP:
		return compressBound(length) + 16;
	case SQUASHFS_LZ4:
		return (size_t)LZ4_compressBound((int)length);
	default:
		return ZSTD_compressBound(length);
	}
}

static size_t run_gzip(z_stream *stream, const void *in, size_t length, void *out)
{
	if (deflateReset(stream) != Z_OK)
		return 0;
	stream->next_in = (Bytef *)in;
	stream->avail_in = (uInt)length;
	stream->next_out = out;
	stream->avail_out = (uInt)squashfs_compressor_bound(SQUASHFS_GZIP, length);
	return deflate(stream, Z_FINISH) == Z_STREAM_END ? stream->total_out : 0;
}

static size_t run_lz4(const struct squashfs_compressor *compressor, const void *in, size_t length, void *out)
{
	int capacity = LZ4_compressBound((int)length), done;

	if (compressor->level > 1)
		done = LZ4_compress_HC_extStateHC(compressor->state, in, out, (int)length, capacity, compressor->level);
	else
		done = LZ4_compress_fast_extState(compressor->state, in, out, (int)length, capacity, 1);
	return done > 0 ? (size_t)done : 0;
}

size_t squashfs_compressor_run(struct squashfs_compressor *compressor, const void *in, size_t length, void *out)
{
	size_t done;

	switch (compressor->compression) {
	case SQUASHFS_GZIP:
		done = run_gzip(compressor->state, in, length, out);
		break;
	case SQUASHFS_LZ4:
		done = run_lz4(compressor, in, length, out);
		break;
	default:
		done = ZSTD_compress2(compressor->state, out, ZSTD_compressBound(length), in, length);
		done = ZSTD_isError(done) ? 0 : done;
	}
	return done < length ? done : 0;
}

size_t squashfs_compressor_options(enum squashfs_compression compression, int level, unsigned char *options)
{
	if (compression == SQUASHFS_LZ4) {
		put32(put32(options, 1), level > 1); /* 1: the legacy block format */
		return 8;
	}
	if (compression == SQUASHFS_ZSTD && level != ZSTD_DEFAULT) {
		put32(options, (uint32_t)level);
		return 4;
	}
	if (compression == SQUASHFS_GZIP && level != 9) {
		put16(put16(put32(options, (uint32_t)level), GZIP_WINDOW), 0);
		return 8;
	}
	return 0;
}
