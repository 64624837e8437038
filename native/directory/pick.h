/* SPDX-License-Identifier: Apache-2.0 */
/* Reads layers without unpacking them: digests are computed for all files, and the content of chosen ones is written
 * once, into one folder under its digest's name. No directory, link or device is made. */
#ifndef IMAGE_PICK_H
#define IMAGE_PICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct image_pick {
	const uint64_t *digests; /* the first 8 bytes of each, as a big-endian number, in rising order */
	size_t count;
	/* NULL; or the digests lie in this file, in the processor's byte order: see image_pick_starts. */
	const uint32_t *starts;
	int file;
	bool wanted; /* `digests` are what to write; else what not to write */
	const char *const *always; /* beginnings of paths of which all is written */
	unsigned n_always;
};

#define IMAGE_PICK_STARTS (65536u + 1)

/* Where in rising `digests` those begin that have the first 16 bits 0, 1, ...; at the end `count`. With this a file of
 * millions is asked by one short read each, and takes no memory. */
void image_pick_starts(const uint64_t *digests, size_t count, uint32_t starts[IMAGE_PICK_STARTS]);

/* Whether content with this digest, of the file at `path`, is to be written. Of a file that cannot be read no digest is listed. */
bool image_pick_takes(const struct image_pick *pick, const unsigned char digest[32], const char *path);

/* The digests of the files of a manifest, which is mapped at `text`, sorted; room for one a line. How many. */
size_t image_pick_digests(const char *text, size_t length, uint64_t *digests);

#endif
