/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that tables that moved to a file keep their content and no longer take memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/layers/order.h"
#include "native/testing/check.h"

#define SIZE ((size_t)16 << 20)
#define NAMES 200000u

/* Bytes of the memory that are mapped now: by the page tables, which the page cache is no part of. */
static size_t in_memory(const void *memory, size_t size)
{
	FILE *map = fopen("/proc/self/pagemap", "rb");
	size_t pages = 0, page = (size_t)getpagesize();
	uint64_t one;

	CHECK(map && !fseek(map, (long)((uintptr_t)memory / page * sizeof(one)), SEEK_SET));
	for (size_t i = 0; map && i < size / page && fread(&one, sizeof(one), 1, map) == 1; i++)
		pages += one >> 63;
	if (map)
		fclose(map);
	return pages * page;
}

static void test_given_back(void)
{
	struct image_error err;
	struct image_spill *spill = image_spill_new("/tmp", SIZE, 0, &err);
	unsigned char *plain = image_spill_take(spill, SIZE), *filed = image_spill_take(spill, SIZE);
	size_t wrong = 0;

	CHECK(plain && filed);
	for (size_t i = 0; plain && filed && i < SIZE; i += 512) {
		wrong += plain[i] || filed[i];
		plain[i] = filed[i] = (unsigned char)(i >> 9) | 1;
		image_spill_tend(spill);
	}
	image_spill_look(spill);
	CHECK(!wrong);
	CHECK(in_memory(plain, SIZE) == SIZE);
	CHECK(in_memory(filed, SIZE) == 0);
	for (size_t i = 0; i < SIZE; i += 512)
		wrong += filed[i] != ((unsigned char)(i >> 9) | 1);
	CHECK(!wrong);
	/* What is given back is free for the next, and that is zeros again. */
	image_spill_give(spill, plain);
	image_spill_give(spill, filed);
	plain = image_spill_take(spill, SIZE);
	CHECK(plain && !plain[512]);
	image_spill_look(spill);
	CHECK(in_memory(plain, SIZE) != 0);
	image_spill_free(spill);
}

static void test_no_room(void)
{
	struct image_error err;
	struct image_spill *spill = image_spill_new("/dev/shm/absent", 0, 0, &err);

	CHECK(!image_spill_take(spill, 1) && errno == ENOENT);
	image_spill_free(spill);
	errno = ENOSPC;
	image_fail_memory(&err);
	CHECK(err.number == ENOSPC);
	errno = ENOMEM;
	image_fail_memory(&err);
	CHECK(err.number == ENOMEM);
}

static size_t name_of(uint32_t number, char *name)
{
	return (size_t)snprintf(name, 32, "%x.conf", number * 0x9e3779b1u);
}

/* The same tree, with all of it in memory and with nothing. */
static void test_tree(size_t memory)
{
	struct image_error err;
	struct image_tree *tree = image_tree_new("/tmp", memory, &err);
	struct image_order order;
	uint32_t folder = image_tree_make(tree, IMAGE_ROOT, "folder", 6), wrong = 0;
	char name[32];

	image_tree_node(tree, folder)->kind = 'd';
	CHECK(!image_tree_make_folder(tree, folder));
	for (uint32_t i = 0; i < NAMES; i++) {
		size_t length = name_of(i, name);
		uint32_t parent = i & 1 ? folder : IMAGE_ROOT;

		wrong += image_tree_find(tree, parent, name, length) != IMAGE_ROOT;
		wrong += image_tree_make(tree, parent, name, length) != folder + 1 + i;
		image_tree_node(tree, folder + 1 + i)->kind = 'f';
		if (!(i % 1000))
			image_spill_look(image_tree_spill(tree));
	}
	for (uint32_t i = 0; i < NAMES; i++) {
		size_t length = name_of(i, name);

		wrong += image_tree_find(tree, i & 1 ? folder : IMAGE_ROOT, name, length) != folder + 1 + i;
		wrong += image_tree_find(tree, i & 1 ? IMAGE_ROOT : folder, name, length) != IMAGE_ROOT;
	}
	CHECK(!wrong);
	CHECK(!image_order_new(&order, tree, &err));
	CHECK(order.starts[2] == NAMES + 1);
	for (uint32_t i = 1; i < NAMES / 2; i++) {
		uint32_t a = order.children[order.starts[1] + i - 1], b = order.children[order.starts[1] + i];
		char left[32] = "", right[32] = "";

		memcpy(left, image_tree_name(tree, a), image_tree_node(tree, a)->name_length);
		memcpy(right, image_tree_name(tree, b), image_tree_node(tree, b)->name_length);
		wrong += strcmp(left, right) >= 0;
	}
	CHECK(!wrong);
	image_order_free(&order);
	image_tree_free(tree);
}

int main(void)
{
	test_given_back();
	test_no_room();
	test_tree(IMAGE_MEMORY_IMPORT);
	test_tree(0);
	return check_result("spill");
}
