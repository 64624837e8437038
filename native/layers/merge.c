/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the layers of an image into one tree, as the OCI specification says, and hands each file to the sink that
 * writes it. layers.c calls it. */
#define _GNU_SOURCE
#include "merge_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHITEOUT ".wh."
#define OPAQUE ".wh..wh..opq"
#define AUFS ".wh..wh." /* aufs' own notes, which mean nothing elsewhere */

/* How many names may change hands in sum: a second at most, where a layer has the same files over and over. */
#define INHERITED_MOST ((uint64_t)1 << 25)

/* Where an entry belongs. */
struct entry_path {
	uint32_t folder, node; /* node: IMAGE_ROOT where there is none yet, or for the root */
	const char *name;
	size_t name_length;
	bool hidden;
};

struct image_merge *image_merge_new(struct image_tree *tree, const struct image_sink *sink, struct image_error *err)
{
	struct image_merge *merge = calloc(1, sizeof(*merge));

	if (!merge) {
		image_fail_memory(err);
		return NULL;
	}
	merge->tree = tree;
	merge->sink = *sink;
	merge->lists.spill = image_tree_spill(tree);
	at(merge, IMAGE_ROOT)->kind = 'd';
	at(merge, IMAGE_ROOT)->flags = IMAGE_IMPLIED;
	return merge;
}

void image_merge_free(struct image_merge *merge)
{
	if (!merge)
		return;
	merge_lists_free(&merge->lists);
	free(merge->arrived);
	free(merge);
}

static bool begins(const char *name, size_t length, const char *prefix)
{
	return length >= strlen(prefix) && !memcmp(name, prefix, strlen(prefix));
}

/* A node becomes part of the tree. */
static int claim(struct image_merge *merge, uint32_t number, char kind, unsigned layer, struct image_error *err)
{
	struct image_node *node = at(merge, number);
	bool whiteout = node->kind == 'w';

	if (kind == 'd' && image_tree_make_folder(merge->tree, number))
		return image_fail_memory(err);
	if (kind != 'd')
		node->link = number;
	node->kind = kind;
	node->claimed = (uint16_t)layer;
	/* Opaque by a marker that came before it, or by the whiteout of what was here. */
	if (kind == 'd' && whiteout && node->covered > layer)
		node->covered = (uint16_t)layer;
	node->flags &= (uint8_t)~(IMAGE_IMPLIED | IMAGE_PENDING);
	if (number && kind != 'w')
		at(merge, node->parent)->flags |= IMAGE_HAS_CHILDREN;
	return 0;
}

static int not_a_folder(struct image_merge *merge, uint32_t number, struct image_error *err)
{
	char path[IMAGE_PATH_LONGEST + 1] = "";

	image_tree_path(merge->tree, number, path, sizeof(path));
	return image_fail(err, IMAGE_FAULT_SOURCE, path, "is no directory, and the archive has files below it");
}

/* What to do about directories on the way that nothing has said to be there. */
enum missing {
	LEAVE,
	NOTE,  /* nodes are made, but not part of the tree: for a whiteout */
	CLAIM, /* they are part of the tree */
};

/* Finds where `path` belongs. Below what is hidden nothing is made. */
static int resolve_path(struct image_merge *merge, unsigned layer, const char *path, size_t length,
			enum missing missing, struct entry_path *at_path, struct image_error *err)
{
	const char *end = path + length, *slash = memrchr(path, '/', length);

	*at_path = (struct entry_path){ .name = slash ? slash + 1 : path };
	at_path->name_length = (size_t)(end - at_path->name);
	for (; (slash = memchr(path, '/', (size_t)(end - path))); path = slash + 1) {
		size_t part = (size_t)(slash - path);
		uint32_t next;
		struct image_node *node;

		at_path->hidden |= at(merge, at_path->folder)->covered < layer;
		next = image_tree_find(merge->tree, at_path->folder, path, part);
		if (!next && (missing == LEAVE || at_path->hidden))
			return 0;
		if (!next && !(next = image_tree_make(merge->tree, at_path->folder, path, part)))
			return image_fail_memory(err);
		node = at(merge, next);
		if (node->kind && node->kind != 'd') {
			if (node->claimed < layer || (node->kind != 'w' && missing == NOTE))
				at_path->hidden = true;
			else if (node->kind != 'w' && missing == CLAIM)
				return not_a_folder(merge, next, err);
		}
		if (missing == CLAIM && !at_path->hidden && node->kind != 'd') {
			if (claim(merge, next, 'd', layer, err))
				return -1;
			node->flags |= IMAGE_IMPLIED;
		}
		at_path->folder = next;
	}
	at_path->hidden |= at(merge, at_path->folder)->covered < layer;
	at_path->node = image_tree_find(merge->tree, at_path->folder, at_path->name, at_path->name_length);
	return 0;
}

/* The other names of a file go on without this one: the latest of them stands for the file. */
static int inherit(struct image_merge *merge, uint32_t number, uint32_t *heir, struct image_error *err)
{
	*heir = merge_lists_link(&merge->lists, number);
	if (!*heir)
		return 0;
	for (uint32_t link = *heir; link; link = merge_lists_next_link(&merge->lists, link)) {
		at(merge, link)->link = *heir;
		merge->inherited++;
	}
	merge_lists_inherit(&merge->lists, number);
	if (merge->inherited <= INHERITED_MOST)
		return 0;
	char path[IMAGE_PATH_LONGEST + 1] = "";
	image_tree_path(merge->tree, number, path, sizeof(path));
	return image_fail(err, IMAGE_FAULT_SOURCE, path, "is one of too many files with many hard links that come twice in their layer; "
			  "make the layer anew, with each file once");
}

/* A second entry of one layer for a path: the later one counts. */
static int replace(struct image_merge *merge, uint32_t number, struct image_error *err)
{
	struct image_node *node = at(merge, number);
	uint32_t heir = IMAGE_ROOT;

	if (node->kind == 'd' && (node->flags & IMAGE_HAS_CHILDREN))
		return not_a_folder(merge, number, err);
	if (node->flags & IMAGE_PENDING) {
		uint32_t waits = merge_lists_waits(&merge->lists, number);
		struct waiting *one = waits ? &merge->lists.waiting[waits - 1] : NULL;

		if (one && !one->done) {
			merge->n_hidden -= one->hidden;
			one->done = true;
		}
		return 0;
	}
	if (node->kind != 'd' && node->link != number)
		merge_lists_leave(&merge->lists, node->link, number);
	else if (node->kind != 'd' && inherit(merge, number, &heir, err))
		return -1;
	return merge->sink.operations->replace(merge->sink.context, number, heir, err);
}

static int whiteout(struct image_merge *merge, unsigned layer, const struct entry_path *at_path, struct image_error *err)
{
	const char *name = at_path->name + strlen(WHITEOUT);
	size_t length = at_path->name_length - strlen(WHITEOUT);
	struct image_node *node;
	uint32_t number;

	if (!length || (length == 1 && *name == '.') || (length == 2 && !memcmp(name, "..", 2)))
		return image_fail(err, IMAGE_FAULT_SOURCE, "", "a whiteout names nothing");
	number = image_tree_make(merge->tree, at_path->folder, name, length);
	if (!number)
		return image_fail_memory(err);
	node = at(merge, number);
	if (!node->kind)
		return claim(merge, number, 'w', layer, err);
	if (node->kind == 'd' && node->covered > layer)
		node->covered = (uint16_t)layer;
	return 0;
}

static int add_folder(struct image_merge *merge, unsigned layer, uint32_t number, const struct image_entry *entry,
		      struct image_error *err)
{
	struct image_node *node = at(merge, number);

	if (number && node->kind != 'd') {
		if (node->kind && node->kind != 'w' && replace(merge, number, err))
			return -1;
		if (claim(merge, number, 'd', layer, err))
			return -1;
	} else if (!(node->flags & IMAGE_IMPLIED) && node->claimed != layer) {
		return 0; /* a higher layer has described it */
	}
	node->flags &= (uint8_t)~IMAGE_IMPLIED;
	node->claimed = (uint16_t)layer;
	return merge_tell(merge, number, entry, NULL, err);
}

static int add_entry(struct image_merge *merge, unsigned layer, uint32_t number, const struct image_entry *entry,
		     const struct image_content *content, struct image_error *err)
{
	struct image_node *node = at(merge, number);

	if (node->kind == 'd' && (node->flags & IMAGE_IMPLIED))
		return not_a_folder(merge, number, err);
	if (node->kind && node->kind != 'w' && replace(merge, number, err))
		return -1;
	if (claim(merge, number, entry->kind, layer, err))
		return -1;
	if (entry->kind == 'h')
		return merge_resolve(merge, number, layer, entry->target, entry->target_length, err);
	return merge_tell(merge, number, entry, content, err);
}

/* A layer has something else where a higher one has a directory: that began afresh, whatever directory lies below both. So
 * overlayfs has it, and whoever unpacks one layer over the other. Where the higher layer only names files in the directory,
 * unpacking would follow a symbolic link; docker and podman mount layers, and what people tried is that. */
static void hide_below(struct image_node *node, unsigned layer)
{
	if (node->covered > layer)
		node->covered = (uint16_t)layer;
	node->flags &= (uint8_t)~IMAGE_IMPLIED;
}

static int merge_entry(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
		       const struct image_content *content, struct image_error *err)
{
	struct entry_path at_path;
	struct image_node *node;
	uint32_t number;

	if (!entry->path_length)
		return entry->kind == 'd' ? add_folder(merge, layer, IMAGE_ROOT, entry, err)
					  : image_fail(err, IMAGE_FAULT_SOURCE, "/", "is no directory in the archive");
	/* Nothing becomes part of the tree for what turns out to be hidden. */
	if (resolve_path(merge, layer, entry->path, entry->path_length, LEAVE, &at_path, err))
		return -1;
	number = at_path.node;
	node = number ? at(merge, number) : NULL;
	if (node && node->kind && node->claimed < layer) {
		at_path.hidden |= entry->kind != 'd' || node->kind != 'd';
		if (node->kind == 'd' && entry->kind != 'd')
			hide_below(node, layer);
	}
	if (!at_path.hidden && resolve_path(merge, layer, entry->path, entry->path_length, CLAIM, &at_path, err))
		return -1;
	number = at_path.node;
	if (at_path.hidden)
		return node && (node->flags & IMAGE_IS_AWAITED)
			       ? merge_arrived(merge, layer, number, entry, content, IMAGE_ROOT, false, err)
			       : 0;
	if (!number && !(number = image_tree_make(merge->tree, at_path.folder, at_path.name, at_path.name_length)))
		return image_fail_memory(err);
	if (entry->kind == 'd' ? add_folder(merge, layer, number, entry, err)
			       : add_entry(merge, layer, number, entry, content, err))
		return -1;
	node = at(merge, number);
	if (!(node->flags & IMAGE_IS_AWAITED) || (node->flags & IMAGE_PENDING))
		return 0;
	return merge_arrived(merge, layer, number, entry, NULL, node->link, false, err);
}

/* 1: the entry is a whiteout and was applied, or a note of aufs and is nothing. 0: it is neither. -1. */
static int maybe_whiteout(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
			  struct image_error *err)
{
	bool noted = begins(entry->path, entry->path_length, AUFS) ||
		     memmem(entry->path, entry->path_length, "/" AUFS, strlen("/" AUFS));
	struct entry_path at_path;
	struct image_node *folder;
	const char *slash = memrchr(entry->path, '/', entry->path_length), *name = slash ? slash + 1 : entry->path;

	if (noted && strcmp(name, OPAQUE))
		return 1;
	if (!noted && strncmp(name, WHITEOUT, strlen(WHITEOUT)))
		return 0;
	if (resolve_path(merge, layer, entry->path, entry->path_length, NOTE, &at_path, err))
		return -1;
	if (at_path.hidden)
		return 1;
	if (!noted)
		return whiteout(merge, layer, &at_path, err) ? -1 : 1;
	folder = at(merge, at_path.folder);
	if (folder->covered > layer)
		folder->covered = (uint16_t)layer;
	return 1;
}

int image_merge_entry_as_is(struct image_merge *merge, const struct image_entry *entry,
			    const struct image_content *content, struct image_error *err)
{
	return merge_entry(merge, 0, entry, content, err);
}

int image_merge_entry(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
		      const struct image_content *content, struct image_error *err)
{
	int handled = maybe_whiteout(merge, layer, entry, err);

	if (handled)
		return handled < 0 ? -1 : 0;
	return merge_entry(merge, layer, entry, content, err);
}

int image_merge_again(struct image_merge *merge, unsigned layer, const struct image_entry *entry,
		      const struct image_content *content, struct image_error *err)
{
	struct entry_path at_path;

	if (!entry->path_length || !merge->n_hidden)
		return 0;
	if (resolve_path(merge, IMAGE_NO_LAYER, entry->path, entry->path_length, LEAVE, &at_path, err))
		return -1;
	if (!at_path.node || !(at(merge, at_path.node)->flags & IMAGE_IS_AWAITED))
		return 0;
	return merge_arrived(merge, layer, at_path.node, entry, content, IMAGE_ROOT, true, err);
}
