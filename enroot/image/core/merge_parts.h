/* What the files of the merge share. Private to them. */
#ifndef IMAGE_MERGE_PARTS_H
#define IMAGE_MERGE_PARTS_H

#include "merge.h"

/* A hard link that waits for the file that it names. */
struct awaiting {
	uint32_t target, link;
	uint16_t layer;
	bool hidden; /* a higher layer has something else at `target`: it may have passed already */
	bool done;
};

struct image_merge {
	struct image_tree *tree;
	struct image_sink sink;
	struct awaiting *awaiting;
	size_t n_awaiting, room, n_hidden;
	bool progress; /* of reading a layer again */
	unsigned passes;
};

static inline struct image_node *at(const struct image_merge *merge, uint32_t number)
{
	return image_tree_node(merge->tree, number);
}

/* Passes a directory's or file's entry, with its content, to the sink. */
int merge_tell(struct image_merge *merge, uint32_t node, const struct image_entry *entry,
	       const struct image_content *content, struct image_error *err);

/* `link` is another name of `primary`. */
int merge_tell_link(struct image_merge *merge, uint32_t link, uint32_t primary, struct image_error *err);

/* merge_links.c: `link` is a name of what `layer`, or one below it, has at `path`. */
int merge_resolve(struct image_merge *merge, uint32_t link, unsigned layer, const char *path, size_t length,
		  struct image_error *err);

/* What `layer` has at `target` has come. With a primary: it is part of the tree, and the links that wait join
 * it. Else its content goes to the first of them. `again`: the layer is being read again. */
int merge_arrived(struct image_merge *merge, unsigned layer, uint32_t target, const struct image_entry *entry,
		  const struct image_content *content, uint32_t primary, bool again, struct image_error *err);

#endif
