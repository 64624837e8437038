/* SPDX-License-Identifier: Apache-2.0 */
/* Decompresses gzip with zlib. inflate.c calls it where ISA-L is not there. */
#ifndef IMAGE_ISAL
#define _GNU_SOURCE
#include <stdlib.h>
#include <zlib.h>

#include "inflate_gzip.h"

struct image_gzip {
	z_stream stream;
	bool between; /* no member has begun, or the last one has ended */
	bool any;
};

struct image_gzip *image_gzip_new(void)
{
	struct image_gzip *gzip = calloc(1, sizeof(*gzip));

	/* 16: gzip alone, with its checksum. */
	if (!gzip || inflateInit2(&gzip->stream, 16 + MAX_WBITS) != Z_OK) {
		free(gzip);
		return NULL;
	}
	gzip->between = true;
	return gzip;
}

void image_gzip_free(struct image_gzip *gzip)
{
	if (gzip)
		inflateEnd(&gzip->stream);
	free(gzip);
}

int image_gzip_some(struct image_gzip *gzip, const unsigned char **in, size_t *in_left, unsigned char **out,
		    size_t *out_left, struct image_error *err)
{
	z_stream *stream = &gzip->stream;

	stream->next_in = (unsigned char *)*in;
	stream->avail_in = (unsigned)*in_left;
	stream->next_out = *out;
	stream->avail_out = (unsigned)*out_left;
	do {
		if (gzip->between) {
			/* Zeros after the last member are padding. */
			while (gzip->any && stream->avail_in && !*stream->next_in) {
				stream->next_in++;
				stream->avail_in--;
			}
			if (!stream->avail_in)
				break;
			gzip->between = false;
			gzip->any = true;
		}
		int result = inflate(stream, Z_NO_FLUSH);

		if (result == Z_BUF_ERROR)
			break;
		if (result != Z_OK && result != Z_STREAM_END)
			return image_fail(err, IMAGE_FAULT_SOURCE, "", "damaged gzip data: %s",
					  stream->msg ? stream->msg : "zlib says no more");
		if (result == Z_STREAM_END) {
			inflateReset(stream);
			gzip->between = true;
		}
	} while (stream->avail_in && stream->avail_out);
	*in = stream->next_in;
	*in_left = stream->avail_in;
	*out = stream->next_out;
	*out_left = stream->avail_out;
	return 0;
}

bool image_gzip_is_complete(const struct image_gzip *gzip)
{
	return gzip->any && gzip->between;
}

const char *image_gzip_library(void)
{
	return "zlib";
}
#endif
