/* SPDX-License-Identifier: Apache-2.0 */
/* Decompresses a layer: gzip, zstd or none, recognised by its first bytes. stream.c and enroot/importing call it. */
#define _GNU_SOURCE
#include "inflate.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "inflate_gzip.h"

struct image_inflate {
	enum image_compression compression;
	struct image_gzip *gzip;
	ZSTD_DStream *zstd;
	bool complete;
};

enum image_compression image_compression_of(const unsigned char *start, size_t length)
{
	if (length >= 2 && start[0] == 0x1f && start[1] == 0x8b)
		return IMAGE_GZIP;
	if (length >= 4 && !memcmp(start, "\x28\xb5\x2f\xfd", 4))
		return IMAGE_ZSTD;
	/* A skippable frame: zstd:chunked and pzstd may begin with one. */
	if (length >= 4 && (start[0] & 0xf0) == 0x50 && !memcmp(start + 1, "\x2a\x4d\x18", 3))
		return IMAGE_ZSTD;
	if ((length >= 6 && !memcmp(start, "\xfd" "7zXZ", 6)) || (length >= 3 && !memcmp(start, "BZh", 3)))
		return IMAGE_OTHER;
	return IMAGE_PLAIN;
}

struct image_inflate *image_inflate_new(enum image_compression compression, struct image_error *err)
{
	struct image_inflate *inflate = calloc(1, sizeof(*inflate));

	if (!inflate) {
		image_fail_memory(err);
		return NULL;
	}
	inflate->compression = compression;
	if (compression == IMAGE_GZIP)
		inflate->gzip = image_gzip_new();
	else
		inflate->zstd = ZSTD_createDStream();
	if (!inflate->gzip && !inflate->zstd) {
		image_inflate_free(inflate);
		image_fail_memory(err);
		return NULL;
	}
	/* A window of up to 128 MiB, as every decoder must take by RFC 8878 at level 19 with --long=27; not 2 GiB. */
	if (inflate->zstd)
		ZSTD_DCtx_setParameter(inflate->zstd, ZSTD_d_windowLogMax, 27);
	return inflate;
}

void image_inflate_free(struct image_inflate *inflate)
{
	if (!inflate)
		return;
	image_gzip_free(inflate->gzip);
	ZSTD_freeDStream(inflate->zstd);
	free(inflate);
}

static int zstd_some(struct image_inflate *inflate, const unsigned char **in, size_t *in_left,
		     unsigned char **out, size_t *out_left, struct image_error *err)
{
	ZSTD_inBuffer from = { *in, *in_left, 0 };
	ZSTD_outBuffer to = { *out, *out_left, 0 };
	size_t left = 1;

	/* Asked for more when a frame's end has just filled the block: it would wait for another frame. */
	if (inflate->complete && !*in_left)
		return 0;
	/* Also with the input used up: what is decoded already may still have to be written. */
	do {
		left = ZSTD_decompressStream(inflate->zstd, &to, &from);
		if (ZSTD_isError(left))
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "damaged zstd data: %s",
					  ZSTD_getErrorName(left));
		inflate->complete = left == 0;
	} while (from.pos < from.size && to.pos < to.size);
	*in += from.pos;
	*in_left -= from.pos;
	*out += to.pos;
	*out_left -= to.pos;
	return 0;
}

int image_inflate_some(struct image_inflate *inflate, const unsigned char **in, size_t *in_left,
		       unsigned char **out, size_t *out_left, struct image_error *err)
{
	if (inflate->compression == IMAGE_ZSTD)
		return zstd_some(inflate, in, in_left, out, out_left, err);
	return image_gzip_some(inflate->gzip, in, in_left, out, out_left, err);
}

bool image_inflate_is_complete(const struct image_inflate *inflate)
{
	return inflate->compression == IMAGE_ZSTD ? inflate->complete : image_gzip_is_complete(inflate->gzip);
}

const char *image_inflate_library(void)
{
	return image_gzip_library();
}
