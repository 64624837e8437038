/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a whole buffer at an offset of a file, by as many pwrite(2) as it takes. */
#ifndef IMAGE_WRITE_AT_H
#define IMAGE_WRITE_AT_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

/* Writes `length` bytes at `offset` of a file that has no path to tell. Returns 0 or -1. */
int image_write_at(int fd, const void *data, size_t length, uint64_t offset, struct image_error *err);

#endif
