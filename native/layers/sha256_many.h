/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) of many buffers at once: one lane of a vector register each.
 *
 * Where the processor has SHA instructions OpenSSL is faster on one buffer than this on many; where not, this
 * is some three times as fast (docs/decisions). A tree is mostly small files: there are always many to hash. */
#ifndef IMAGE_SHA256_MANY_H
#define IMAGE_SHA256_MANY_H

#include <stddef.h>

struct sha256_one {
	const unsigned char *data;
	size_t length;
	unsigned char *digest; /* 32 bytes, written */
};

/* Any number of them, of any lengths, by what is fastest here. Their order changes. */
void image_sha256_many(struct sha256_one *all, size_t count);

/* By lanes in any case; `wide`: sixteen, which takes AVX-512 to be worth it, else eight. For tests. */
void image_sha256_lanes(struct sha256_one *all, size_t count, int wide);

#endif
