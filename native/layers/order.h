/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a tree in sorted order, made when all have been added. */
#ifndef IMAGE_ORDER_H
#define IMAGE_ORDER_H

#include "tree.h"

/* In memory that lies in the tree's spill. Of the directory with number f: children[starts[f]] up to children[starts[f + 1]], by the bytes of their names. */
struct image_order {
	struct image_spill *spill;
	uint32_t *children, *starts;
};

/* Whether a node is part of the tree. */
static inline bool image_node_is_real(const struct image_node *node)
{
	return node->kind && node->kind != 'w';
}

/* Ends the index by name: hash_next is 0 in all nodes after it. */
int image_order_new(struct image_order *order, struct image_tree *tree, struct image_error *err);
void image_order_free(struct image_order *order);

#endif
