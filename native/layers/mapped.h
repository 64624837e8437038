/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file through mmap(2) from beginning to end, and gives back the memory of what was read. */
#ifndef IMAGE_MAPPED_H
#define IMAGE_MAPPED_H

#include <stdint.h>
#include <sys/mman.h>

#define IMAGE_MAPPED_STEP ((uint64_t)4 << 20)

/* Gives back what lies before `at`, up to a few megabytes; it is read again when it is asked for again. */
static inline void image_mapped_drop(const void *base, uint64_t *dropped, uint64_t at)
{
	while (at - *dropped >= IMAGE_MAPPED_STEP) {
		madvise((char *)base + *dropped, IMAGE_MAPPED_STEP, MADV_DONTNEED);
		*dropped += IMAGE_MAPPED_STEP;
	}
}

#endif
