/* SPDX-License-Identifier: Apache-2.0 */
/* Decompression of one layer: gzip (RFC 1952, also several members), zstd (RFC 8878, also several frames), none.
 *
 * Which one it is shows in the first bytes, never in a name or media type: registries hold layers whose
 * media type is wrong.
 */
#ifndef IMAGE_INFLATE_H
#define IMAGE_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

enum image_compression { IMAGE_PLAIN, IMAGE_GZIP, IMAGE_ZSTD, IMAGE_OTHER };

/* IMAGE_OTHER: xz or bzip2, which the core does not read. */
enum image_compression image_compression_of(const unsigned char *start, size_t length);

struct image_inflate;

struct image_inflate *image_inflate_new(enum image_compression compression, struct image_error *err);
void image_inflate_free(struct image_inflate *inflate);

/* Reads from `*in` and writes to `*out`, moving both; returns when one is used up. 0, or -1. */
int image_inflate_some(struct image_inflate *inflate, const unsigned char **in, size_t *in_left,
		       unsigned char **out, size_t *out_left, struct image_error *err);

/* Whether what was read ended where a member or frame does: false means that it was cut off. */
bool image_inflate_is_complete(const struct image_inflate *inflate);

/* Name of the library that reads gzip in this build: "isa-l" or "zlib". */
const char *image_inflate_library(void);

#endif
