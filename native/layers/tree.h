/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of a tree in little memory, for millions of files: each takes 24 bytes, 2 to 4 of an index, and its name.
 *
 * A node (a path) is found by its parent and name, is never removed, and keeps its number. Nodes lie in chunks that
 * do not move, so one thread may read names while another adds to the tree. Large trees lie mostly in a file without
 * a name (spill.h).
 */
#ifndef IMAGE_TREE_H
#define IMAGE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spill.h"

/* Number of a layer, counted from the top. The OCI specification has no limit; overlayfs takes 500. */
#define IMAGE_NO_LAYER UINT16_MAX
#define IMAGE_LAYERS_MOST 1000

/* Number of the root's node; as a parent, a link or a search's result it means none. */
#define IMAGE_ROOT 0u

enum image_node_flag {
	IMAGE_IMPLIED = 1,      /* a directory that only paths below it mention so far */
	IMAGE_HAS_CHILDREN = 2, /* claimed ones */
	IMAGE_IS_AWAITED = 4,   /* a hard link waits for what a lower layer has here */
	IMAGE_PENDING = 8,      /* a hard link whose file has not come yet */
};

struct image_node {
	uint32_t parent;
	uint32_t hash_next; /* once all layers are read: see records.h */
	uint32_t name;      /* where, in the names */
	uint32_t link;      /* a directory's number among directories; else the node that has its record */
	uint16_t claimed;   /* the layer that says what is here; of lower ones nothing is */
	uint16_t covered;   /* a directory: nothing of the layers below this one is in it */
	uint8_t name_length;
	char kind; /* as in an entry; 'w': nothing, by a whiteout; 0: not known yet */
	uint8_t flags;
};

struct image_tree;

/* Bytes of memory for what is known of a tree: of a process that imports images, and of one that changes volumes. */
#define IMAGE_MEMORY_IMPORT ((size_t)24 << 20)
#define IMAGE_MEMORY_VOLUME ((size_t)96 << 20)
#define IMAGE_MEMORY_MAPPED ((size_t)72 << 20) /* of the file, more than that */

/* `folder` is a directory on a local file system. */
struct image_tree *image_tree_new(const char *folder, size_t memory, struct image_error *err);
void image_tree_free(struct image_tree *tree);

/* Where tables about its nodes may lie; they are the tree's, and gone with it. */
struct image_spill *image_tree_spill(const struct image_tree *tree);

uint32_t image_tree_count(const struct image_tree *tree);
uint32_t image_tree_folders(const struct image_tree *tree);
struct image_node *image_tree_node(const struct image_tree *tree, uint32_t number);
const char *image_tree_name(const struct image_tree *tree, uint32_t number); /* no zero byte at its end */

/* The node of a directory's number. */
uint32_t image_tree_folder_node(const struct image_tree *tree, uint32_t folder);

/* The child of that name; IMAGE_ROOT: there is none. */
uint32_t image_tree_find(const struct image_tree *tree, uint32_t parent, const char *name, size_t length);

/* The child of that name, made when it is not there; IMAGE_ROOT: no memory. */
uint32_t image_tree_make(struct image_tree *tree, uint32_t parent, const char *name, size_t length);

/* Frees the index: from here on nothing may be found or made. */
void image_tree_end_index(struct image_tree *tree);

/* Gives a node that becomes a directory its number among them. 0, or -1: no memory. */
int image_tree_make_folder(struct image_tree *tree, uint32_t number);

/* Writes the path and a zero byte; gives its length, or -1 when it is longer than `size` allows. */
int image_tree_path(const struct image_tree *tree, uint32_t number, char *path, size_t size);

#endif
