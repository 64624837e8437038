/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the manifest of a volume, one line per file. cellblock/jail/tree/manifest.py describes the
 * format and reads it. */
#ifndef IMAGE_MANIFEST_H
#define IMAGE_MANIFEST_H

#include "native/directory/directory.h"

struct image_summary {
	unsigned long long entries, bytes; /* bytes: of the regular files, links counted once */
	char digest[65];                   /* that the last line has */
};

/* Lines in the order of a sorted walk to `fd`. With a `shard`, only its own, without first and last line.
 * The tree can only be read afterwards, not searched. */
int image_manifest_write(struct image_tree *tree, struct image_records *records, int fd,
			 const struct image_directory *shard, const struct image_interrupt *interrupt,
			 struct image_summary *summary, struct image_error *err);

#endif
