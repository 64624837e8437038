/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a tree whose names fill their 4 GiB refuses the next name, and overwrites none. */
#include "native/layers/tree.c"

#include <stdio.h>

#include "native/testing/check.h"

int main(void)
{
	struct image_error err;
	struct image_tree *tree = image_tree_new("/tmp", IMAGE_MEMORY_IMPORT, &err);
	uint32_t first = image_tree_make(tree, IMAGE_ROOT, "first", 5), made = 0;
	char name[256];

	CHECK(first);
	tree->names_used = (uint64_t)(CHUNKS - 1) << NAMES_BITS;
	do {
		snprintf(name, sizeof(name), "%0255u", made);
		errno = 0;
	} while (image_tree_make(tree, first, name, 255) && ++made < NAMES);
	CHECK(made == NAMES / 255 && errno == ENOMEM);
	CHECK(!memcmp(image_tree_name(tree, first), "first", 5));
	CHECK(image_tree_find(tree, IMAGE_ROOT, "first", 5) == first);
	image_tree_free(tree);
	return check_result("tree_full");
}
