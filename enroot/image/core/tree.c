#define _GNU_SOURCE
#include "tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define CHUNK_BITS 16
#define CHUNK (1u << CHUNK_BITS)
#define CHUNKS 4096 /* 268 million nodes */
#define NAMES_BITS 20
#define NAMES (1u << NAMES_BITS)

struct image_tree {
	struct image_node *nodes[CHUNKS];
	uint32_t *folders[CHUNKS]; /* directory's number to node's */
	char *names[CHUNKS];
	uint32_t *buckets;
	uint32_t count, n_folders, names_used, mask;
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

static uint32_t hash(const struct image_tree *tree, uint32_t parent, const char *name, size_t length)
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
	h *= tree->key | 1;
	return (uint32_t)(h >> 32);
}

/* Room for number `at` in an array of chunks. */
static int make_room(void **chunks, uint32_t at, unsigned bits, size_t size)
{
	uint32_t chunk = at >> bits;

	if (chunk >= CHUNKS)
		return -1;
	if (!chunks[chunk])
		chunks[chunk] = calloc((size_t)1 << bits, size);
	return chunks[chunk] ? 0 : -1;
}

static uint32_t add(struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	uint32_t number = tree->count, used = tree->names_used;
	struct image_node *node;

	/* A name lies in one chunk. */
	if ((used & (NAMES - 1)) + length > NAMES)
		used = (used | (NAMES - 1)) + 1;
	if (make_room((void **)tree->nodes, number, CHUNK_BITS, sizeof(struct image_node)) ||
	    make_room((void **)tree->names, used, NAMES_BITS, 1))
		return IMAGE_ROOT;
	node = image_tree_node(tree, number);
	*node = (struct image_node){ .parent = parent, .name = used, .link = number,
				     .name_length = (uint8_t)length, .claimed = IMAGE_NO_LAYER,
				     .covered = IMAGE_NO_LAYER };
	memcpy(tree->names[used >> NAMES_BITS] + (used & (NAMES - 1)), name, length);
	tree->names_used = used + (uint32_t)length;
	tree->count++;
	return number;
}

struct image_tree *image_tree_new(struct image_error *err)
{
	struct image_tree *tree = calloc(1, sizeof(*tree));

	if (tree) {
		tree->mask = (1u << 14) - 1;
		tree->buckets = calloc((size_t)tree->mask + 1, sizeof(uint32_t));
	}
	if (!tree || !tree->buckets || getrandom(&tree->key, sizeof(tree->key), 0) < 0) {
		image_tree_free(tree);
		image_fail_memory(err);
		return NULL;
	}
	add(tree, IMAGE_ROOT, "", 0);
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
	for (size_t i = 0; i < CHUNKS; i++) {
		free(tree->nodes[i]);
		free(tree->folders[i]);
		free(tree->names[i]);
	}
	free(tree->buckets);
	free(tree);
}

uint32_t image_tree_find(const struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	uint32_t number = tree->buckets[hash(tree, parent, name, length) & tree->mask];

	while (number) {
		const struct image_node *node = image_tree_node(tree, number);

		if (node->parent == parent && node->name_length == length &&
		    !memcmp(image_tree_name(tree, number), name, length))
			return number;
		number = node->hash_next;
	}
	return IMAGE_ROOT;
}

static void put(struct image_tree *tree, uint32_t number)
{
	struct image_node *node = image_tree_node(tree, number);
	uint32_t *bucket = &tree->buckets[hash(tree, node->parent, image_tree_name(tree, number), node->name_length) &
					  tree->mask];

	node->hash_next = *bucket;
	*bucket = number;
}

static int grow(struct image_tree *tree)
{
	uint32_t *buckets = calloc(2 * ((size_t)tree->mask + 1), sizeof(uint32_t));

	if (!buckets)
		return -1;
	free(tree->buckets);
	tree->buckets = buckets;
	tree->mask = 2 * tree->mask + 1;
	for (uint32_t i = 1; i < tree->count; i++)
		put(tree, i);
	return 0;
}

uint32_t image_tree_make(struct image_tree *tree, uint32_t parent, const char *name, size_t length)
{
	uint32_t number = image_tree_find(tree, parent, name, length);

	if (number)
		return number;
	/* Two nodes a bucket: with five million, half of the index's memory for a look more at every second name. */
	if (tree->count > 2 * (uint64_t)tree->mask && grow(tree))
		return IMAGE_ROOT;
	number = add(tree, parent, name, length);
	if (number)
		put(tree, number);
	return number;
}

void image_tree_end_index(struct image_tree *tree)
{
	free(tree->buckets);
	tree->buckets = NULL;
}

int image_tree_make_folder(struct image_tree *tree, uint32_t number)
{
	uint32_t folder = tree->n_folders;

	if (make_room((void **)tree->folders, folder, CHUNK_BITS, sizeof(uint32_t)))
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
