/* SPDX-License-Identifier: Apache-2.0 */
/* Decompresses gzip, with the library ISA-L if it was there to compile with (IMAGE_ISAL), else with zlib.
 * docs/decisions has the measurements. */
#ifndef IMAGE_INFLATE_GZIP_H
#define IMAGE_INFLATE_GZIP_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

struct image_gzip;

struct image_gzip *image_gzip_new(void); /* NULL: no memory */
void image_gzip_free(struct image_gzip *gzip);
int image_gzip_some(struct image_gzip *gzip, const unsigned char **in, size_t *in_left, unsigned char **out,
		    size_t *out_left, struct image_error *err);
bool image_gzip_is_complete(const struct image_gzip *gzip);
const char *image_gzip_library(void);

#endif
