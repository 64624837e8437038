/* SPDX-License-Identifier: Apache-2.0 */
/* Structs and functions that only the files of the merge (merge*.c) use. */
#ifndef IMAGE_MERGE_PARTS_H
#define IMAGE_MERGE_PARTS_H

#include "merge.h"
#include "merge_lists.h"

struct image_merge {
	struct image_tree *tree;
	struct image_sink sink;
	struct merge_lists lists;
	size_t n_hidden;
	uint64_t inherited; /* names that another file took over, in sum */
	uint32_t *arrived;  /* links whose file has come, and that others wait for */
	size_t n_arrived, arrived_capacity;
	bool progress; /* of reading a layer again */
	unsigned passes;
};

static inline struct image_node *at(const struct image_merge *merge, uint32_t number)
{
	return image_tree_node(merge->tree, number);
}

/* merge_tell.c: pass a directory's or file's entry, with its content, to the sink. */
int merge_tell(struct image_merge *merge, uint32_t node, const struct image_entry *entry,
	       const struct image_content *content, struct image_error *err);

/* merge_tell.c: `link` is another name of `primary`. */
int merge_tell_link(struct image_merge *merge, uint32_t link, uint32_t primary, struct image_error *err);

/* merge_links.c: `link` is a name of what `layer`, or one below it, has at `path`. */
int merge_resolve(struct image_merge *merge, uint32_t link, unsigned layer, const char *path, size_t length,
		  struct image_error *err);

/* What `layer` has at `target` has come, for links of the layers above. With a primary: it is part of the tree, and the links that wait join
 * it. Else its content goes to the first of them. `again`: for links
 * of this layer, which is being read again. */
int merge_arrived(struct image_merge *merge, unsigned layer, uint32_t target, const struct image_entry *entry,
		  const struct image_content *content, uint32_t primary, bool again, struct image_error *err);

#endif
