/* SHA-256 (FIPS 180-4) of many buffers at once: one lane of a vector register each.
 *
 * Where the processor has SHA instructions OpenSSL is as fast on one buffer; where not, this is about three
 * times as fast (see docs/decisions). A tree is mostly small files: there are always many to hash. */
#ifndef IMAGE_SHA256_MANY_H
#define IMAGE_SHA256_MANY_H

#include <stddef.h>

struct sha256_one {
	const unsigned char *data;
	size_t length;
	unsigned char *digest; /* 32 bytes, written */
};

/* Any number of them, of any lengths. `vectors`: use the lanes also where SHA instructions are (for tests). */
void image_sha256_many(const struct sha256_one *all, size_t count);
void image_sha256_lanes(const struct sha256_one *all, size_t count);

/* "lanes" or "instructions": what image_sha256_many uses here. */
const char *image_sha256_how(void);

#endif
