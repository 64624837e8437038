/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts the paths of a tree, when all have been added. Squashfs images and manifests are written in that order.
 * native/squashfs and native/volume call it. */
#define _GNU_SOURCE
#include "order.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b, void *context)
{
	const struct image_tree *tree = context;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	size_t x_length = image_tree_node(tree, x)->name_length, y_length = image_tree_node(tree, y)->name_length;
	int result;

	image_spill_tend(image_tree_spill(tree));
	result = memcmp(image_tree_name(tree, x), image_tree_name(tree, y), x_length < y_length ? x_length : y_length);
	return result ? result : (x_length > y_length) - (x_length < y_length);
}

int image_order_new(struct image_order *order, struct image_tree *tree, struct image_error *err)
{
	uint32_t count = image_tree_count(tree), folders = image_tree_folders(tree);
	struct image_spill *spill = image_tree_spill(tree);

	image_tree_end_index(tree); /* before the order, which is as large */
	order->spill = spill;
	order->starts = image_spill_take(spill, ((size_t)folders + 2) * sizeof(uint32_t));
	order->children = image_spill_take(spill, ((size_t)count + 1) * sizeof(uint32_t));
	if (!order->starts || !order->children)
		return image_fail_memory(err);
	for (uint32_t i = 1; i < count; i++) {
		struct image_node *node = image_tree_node(tree, i);

		image_spill_tend(spill);
		node->hash_next = 0;
		if (image_node_is_real(node))
			order->starts[image_tree_node(tree, node->parent)->link + 2]++;
	}
	for (uint32_t i = 2; i < folders + 2; i++)
		order->starts[i] += order->starts[i - 1];
	for (uint32_t i = 1; i < count; i++) {
		const struct image_node *node = image_tree_node(tree, i);

		image_spill_tend(spill);
		if (image_node_is_real(node))
			order->children[order->starts[image_tree_node(tree, node->parent)->link + 1]++] = i;
	}
	for (uint32_t i = 0; i < folders; i++)
		qsort_r(order->children + order->starts[i], order->starts[i + 1] - order->starts[i],
			sizeof(uint32_t), by_name, tree);
	return 0;
}

void image_order_free(struct image_order *order)
{
	if (!order->spill)
		return;
	image_spill_give(order->spill, order->children);
	image_spill_give(order->spill, order->starts);
	*order = (struct image_order){ NULL, NULL, NULL };
}
