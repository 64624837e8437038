/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the lines in which two manifests of volumes differ: both are sorted, and read side by side once. */
#ifndef IMAGE_MANIFEST_COMPARE_H
#define IMAGE_MANIFEST_COMPARE_H

#include <stddef.h>
#include <stdint.h>

/* Where the line of a path begins in the one and in the other; IMAGE_NO_LINE: it is not in it. */
struct image_difference {
	uint64_t a, b;
};

#define IMAGE_NO_LINE UINT64_MAX

/* The lines between a manifest's header and its end; `at` is where the next is. `text` is of a mapping, of which
 * `dropped` bytes were given back. */
struct image_lines {
	const char *text;
	uint64_t length, at, dropped;
};

/* Writes up to `capacity` differences, and the lines of hard links also when they are equal: what they name may
 * differ. Called again it goes on. How many; less than `capacity`: that is all. */
size_t image_manifest_compare(struct image_lines *a, struct image_lines *b, struct image_difference *found, size_t capacity);

#endif
