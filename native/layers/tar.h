/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a tar: POSIX ustar and pax (with global headers), GNU (long names, sparse files in all four forms),
 * extended attributes as SCHILY.xattr. (star, GNU tar, OCI layers) and LIBARCHIVE.xattr. (bsdtar).
 *
 * Malformed input is refused, never guessed at: a wrong checksum, a number that is none, a name that leaves
 * the root (".."), a map of a sparse file that does not fit its size, an end that is missing. A leading "/"
 * means the root, as in every tool that extracts images.
 */
#ifndef IMAGE_TAR_H
#define IMAGE_TAR_H

#include "entry.h"
#include "error.h"

/* Where the bytes come from: image_stream_next, or a test's memory. Blocks are full except for the last. */
struct image_input {
	int (*next)(void *context, struct image_block **block, struct image_error *err);
	void *context;
};

struct image_tar;

struct image_tar *image_tar_new(const struct image_input *input, struct image_error *err);
void image_tar_free(struct image_tar *tar);

/* Gives the next entry: 1. It is valid until the next call; content that was not read is skipped. 0: the
 * archive has ended, and the input after it was read to its end. -1. */
int image_tar_next(struct image_tar *tar, const struct image_entry **entry, struct image_error *err);

/* Gives the next part of the entry's content: 1. 0: there is no more. -1. */
int image_tar_data(struct image_tar *tar, struct image_slice *slice, struct image_error *err);

#endif
