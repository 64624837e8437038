/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the paths of an image with millions of files in little memory. Files of this folder and other libraries in
 * native/ call it. */
#define _GNU_SOURCE
#include "tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CHUNK_BITS 16
#define CHUNK (1u << CHUNK_BITS)
#define CHUNKS 4096 /* 268 million nodes */
#define NAMES_BITS 20
#define NAMES (1u << NAMES_BITS)

/* `names` has two bits of each name: a search for one that is not there rarely has to look at nodes, which may lie
 * anywhere in a file. */
struct bucket {
	uint32_t first, names;
};

struct image_tree {
	struct image_spill *spill;
	struct image_node *nodes[CHUNKS];
	uint32_t *folders[CHUNKS]; /* directory's number to node's */
	char *names[CHUNKS];
	struct bucket *buckets;
	uint32_t count, n_folders, mask;
	uint64_t names_used; /* up to 2^32, where a node's 32 bits end */
	uint64_t key; /* secret, or an archive could be made to fall into one bucket */
};

struct image_node *image_tree_node(const struct image_tree *tree, uint32_t number)
{
	return &tree->nodes[number >> CHUNK_BITS][number & (CHUNK - 1)];
}

const char *image_tree_name(const struct image_tree *tree, uint32_t number)
{
	uint32_t name = image_tree_node(tree, number)->name;

	return tree->names[name >> NAMES_BITS] + (name & (NAMES - 1));
}

uint32_t image_tree_count(const struct image_tree *tree)
{
	return tree->count;
}

uint32_t image_tree_folders(const struct image_tree *tree)
{
	return tree->n_folders;
}

uint32_t image_tree_folder_node(const struct image_tree *tree, uint32_t folder)
{
	return tree->folders[folder >> CHUNK_BITS][folder & (CHUNK - 1)];
}

static uint64_t hash(const struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	uint64_t h = tree->key ^ ((uint64_t)parent << 8 | length), word;

	for (; length >= 8; name += 8, length -= 8) {
		memcpy(&word, name, 8);
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	word = 0;
	memcpy(&word, name, length);
	h = (h ^ word) * 0xbf58476d1ce4e5b9u;
	h ^= h >> 32;
	return h * (tree->key | 1);
}

static struct bucket *bucket_of(const struct image_tree *tree, uint64_t h)
{
	return &tree->buckets[(uint32_t)(h >> 32) & tree->mask];
}

static uint32_t bits_of(uint64_t h)
{
	return 1u << (h >> 22 & 31) | 1u << (h >> 27 & 31);
}

/* Room for number `at` in an array of chunks. */
static int make_room(struct image_tree *tree, void **chunks, uint64_t at, unsigned bits, size_t size)
{
	uint64_t chunk = at >> bits;

	if (chunk >= CHUNKS) {
		errno = ENOMEM;
		return -1;
	}
	if (!chunks[chunk])
		chunks[chunk] = image_spill_take(tree->spill, size << bits);
	return chunks[chunk] ? 0 : -1;
}

static uint32_t add_node(struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	uint32_t number = tree->count;
	uint64_t used = tree->names_used;
	struct image_node *node;

	/* A name lies in one chunk. */
	if ((used & (NAMES - 1)) + length > NAMES)
		used = (used | (NAMES - 1)) + 1;
	if (make_room(tree, (void **)tree->nodes, number, CHUNK_BITS, sizeof(struct image_node)) ||
	    make_room(tree, (void **)tree->names, used, NAMES_BITS, 1))
		return IMAGE_ROOT;
	node = image_tree_node(tree, number);
	*node = (struct image_node){ .parent = parent, .name = (uint32_t)used, .link = number,
				     .name_length = (uint8_t)length, .claimed = IMAGE_NO_LAYER,
				     .covered = IMAGE_NO_LAYER };
	memcpy(tree->names[used >> NAMES_BITS] + (used & (NAMES - 1)), name, length);
	tree->names_used = used + length;
	tree->count++;
	return number;
}

struct image_tree *image_tree_new(const char *folder, size_t memory, struct image_error *err)
{
	struct image_tree *tree = calloc(1, sizeof(*tree));

	if (!tree || !(tree->spill = image_spill_new(folder, memory, IMAGE_MEMORY_MAPPED, err))) {
		free(tree);
		image_fail_memory(err);
		return NULL;
	}
	tree->mask = (1u << 14) - 1;
	tree->buckets = image_spill_take(tree->spill, ((size_t)tree->mask + 1) * sizeof(struct bucket));
	if (!tree->buckets || getrandom(&tree->key, sizeof(tree->key), 0) < 0) {
		image_tree_free(tree);
		image_fail_memory(err);
		return NULL;
	}
	add_node(tree, IMAGE_ROOT, "", 0);
	if (tree->count != 1 || image_tree_make_folder(tree, IMAGE_ROOT)) {
		image_tree_free(tree);
		image_fail_memory(err);
		return NULL;
	}
	return tree;
}

void image_tree_free(struct image_tree *tree)
{
	if (!tree)
		return;
	image_spill_free(tree->spill);
	free(tree);
}

struct image_spill *image_tree_spill(const struct image_tree *tree)
{
	return tree->spill;
}

static uint32_t find_child(const struct image_tree *tree, uint32_t parent, const char *name, size_t length, uint64_t h)
{
	const struct bucket *bucket = bucket_of(tree, h);
	uint32_t number = bucket->first;

	image_spill_tend(tree->spill);
	if (bits_of(h) & ~bucket->names)
		return IMAGE_ROOT;
	while (number) {
		const struct image_node *node = image_tree_node(tree, number);

		if (node->parent == parent && node->name_length == length &&
		    !memcmp(image_tree_name(tree, number), name, length))
			return number;
		number = node->hash_next;
	}
	return IMAGE_ROOT;
}

uint32_t image_tree_find(const struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	return find_child(tree, parent, name, length, hash(tree, parent, name, length));
}

static void put(struct image_tree *tree, uint32_t number, uint64_t h)
{
	struct bucket *bucket = bucket_of(tree, h);

	image_tree_node(tree, number)->hash_next = bucket->first;
	bucket->first = number;
	bucket->names |= bits_of(h);
}

static int grow(struct image_tree *tree)
{
	struct bucket *buckets = image_spill_take(tree->spill, 2 * ((size_t)tree->mask + 1) * sizeof(struct bucket));

	if (!buckets)
		return -1;
	image_spill_give(tree->spill, tree->buckets);
	tree->buckets = buckets;
	tree->mask = 2 * tree->mask + 1;
	for (uint32_t i = 1; i < tree->count; i++) {
		const struct image_node *node = image_tree_node(tree, i);

		put(tree, i, hash(tree, node->parent, image_tree_name(tree, i), node->name_length));
		image_spill_tend(tree->spill);
	}
	return 0;
}

uint32_t image_tree_make(struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	uint64_t h = hash(tree, parent, name, length);
	uint32_t number = find_child(tree, parent, name, length, h);

	if (number)
		return number;
	/* Four nodes a bucket, at most: it has 8 bytes. */
	if (tree->count > 4 * (uint64_t)tree->mask && grow(tree))
		return IMAGE_ROOT;
	number = add_node(tree, parent, name, length);
	if (number)
		put(tree, number, h);
	return number;
}

void image_tree_end_index(struct image_tree *tree)
{
	image_spill_give(tree->spill, tree->buckets);
	tree->buckets = NULL;
}

int image_tree_make_folder(struct image_tree *tree, uint32_t number)
{
	uint32_t folder = tree->n_folders;

	if (make_room(tree, (void **)tree->folders, folder, CHUNK_BITS, sizeof(uint32_t)))
		return -1;
	tree->folders[folder >> CHUNK_BITS][folder & (CHUNK - 1)] = number;
	image_tree_node(tree, number)->link = folder;
	tree->n_folders++;
	return 0;
}

int image_tree_path(const struct image_tree *tree, uint32_t number, char *path, size_t size)
{
	size_t length = 0, at;

	for (uint32_t n = number; n; n = image_tree_node(tree, n)->parent)
		length += image_tree_node(tree, n)->name_length + 1u;
	length -= length != 0;
	if (length >= size)
		return -1;
	path[length] = 0;
	at = length;
	for (uint32_t n = number; n; n = image_tree_node(tree, n)->parent) {
		size_t part = image_tree_node(tree, n)->name_length;

		at -= part;
		memcpy(path + at, image_tree_name(tree, n), part);
		if (at)
			path[--at] = '/';
	}
	return (int)length;
}
