/* SPDX-License-Identifier: Apache-2.0 */
/* Merges layers into one tree (OCI image-spec 1.1, "Image Layer Filesystem Changeset"), the top layer first.
 *
 * What the top layers have is settled when a lower one comes: each byte is read once, and nothing that is hidden is
 * written. The price: a hard link may name a file of its own layer that a higher layer hides. Its content has passed
 * when the link comes. Such a layer is read again (image_merge_wants_again), for these links.
 */
#ifndef IMAGE_MERGE_H
#define IMAGE_MERGE_H

#include "sink.h"
#include "tree.h"

struct image_merge;

struct image_merge *image_merge_new(struct image_tree *tree, const struct image_sink *sink, struct image_error *err);
void image_merge_free(struct image_merge *merge);

/* Reads one layer, `layer` counted from the top; call in rising order. `data` gives the content of the entry.
 * A layer that is read again may come any number of times before the next. 0 or -1. */
int image_merge_entry(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
		      const struct image_content *content, struct image_error *err);

/* The same for what knows no whiteouts: of a directory, where a name that looks like one is a name. */
int image_merge_entry_as_is(struct image_merge *merge, const struct image_entry *entry,
			    const struct image_content *content, struct image_error *err);

/* Whether the layer that has just been read must be read again: then give its entries to image_merge_again. */
bool image_merge_wants_again(const struct image_merge *merge, unsigned layer);
int image_merge_again(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
		      const struct image_content *content, struct image_error *err);

/* After that: what is still wanted of this layer is in a lower one. False: nothing came of reading again. */
bool image_merge_again_ended(struct image_merge *merge, unsigned layer);

/* After the last layer. -1: a hard link's file was in none. */
int image_merge_end(struct image_merge *merge, struct image_error *err);

#endif
