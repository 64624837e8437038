#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge_parts.h"

/* How often a layer is read again: once for each link in a chain of links to links that is hidden as a whole, of
 * which none longer than one is known; more is a circle. */
#define PASSES_MOST 8

static int await(struct image_merge *merge, uint32_t target, uint32_t link, unsigned layer, bool hidden,
		 struct image_error *err)
{
	if (merge->n_awaiting == merge->room) {
		size_t room = merge->room ? 2 * merge->room : 64;
		struct awaiting *more = reallocarray(merge->awaiting, room, sizeof(*more));

		if (!more)
			return image_fail_memory(err);
		merge->awaiting = more;
		merge->room = room;
	}
	merge->awaiting[merge->n_awaiting++] = (struct awaiting){ target, link, (uint16_t)layer, hidden, false };
	merge->n_hidden += hidden;
	at(merge, target)->flags |= IMAGE_IS_AWAITED;
	at(merge, link)->flags |= IMAGE_PENDING;
	return 0;
}

/* Makes nodes down to a path that only a hard link mentions: no part of the tree yet. */
static uint32_t make_target(struct image_merge *merge, const char *path, size_t length)
{
	uint32_t node = IMAGE_ROOT;
	const char *end = path + length;

	while (path < end) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t part = (size_t)((slash ? slash : end) - path);

		node = image_tree_make(merge->tree, node, path, part);
		if (!node)
			break;
		path += part + 1;
	}
	return node;
}

int merge_resolve(struct image_merge *merge, uint32_t link, unsigned layer, const char *path, size_t length,
		   struct image_error *err)
{
	uint32_t target = make_target(merge, path, length);
	struct image_node *node = at(merge, target);
	bool hidden = false;

	if (!length || target == link)
		return image_fail(err, IMAGE_FAULT_SOURCE, path, "is named as a file by a hard link, and is none");
	if (!target)
		return image_fail_memory(err);
	if (node->claimed == layer && node->kind != 'w') {
		if (node->kind == 'd')
			return image_fail(err, IMAGE_FAULT_SOURCE, path, "is named by a hard link, and is a directory");
		if (!(node->flags & IMAGE_PENDING))
			return merge_tell_link(merge, link, node->link, err);
	}
	for (uint32_t n = target; ; n = at(merge, n)->parent) {
		const struct image_node *one = at(merge, n);

		hidden |= (n == target || one->kind != 'd') && one->kind && one->claimed < layer;
		hidden |= n != target && one->covered < layer;
		if (!n)
			break;
	}
	return await(merge, target, link, layer, hidden, err);
}

int merge_arrived(struct image_merge *merge, unsigned layer, uint32_t target, const struct image_entry *entry,
		   const struct image_content *content, uint32_t primary, bool again, struct image_error *err)
{
	bool waits = false;
	size_t count = merge->n_awaiting; /* those that are added meanwhile wait for another */

	for (size_t i = 0; i < count; i++) {
		struct awaiting one = merge->awaiting[i];

		if (one.target != target || one.done || one.layer > layer || (again && one.layer != layer)) {
			waits |= one.target == target && !one.done;
			continue;
		}
		merge->awaiting[i].done = true;
		merge->n_hidden -= one.hidden;
		merge->progress = true;
		if (entry->kind == 'd')
			return image_fail(err, IMAGE_FAULT_SOURCE, entry->path,
					  "is named by a hard link, and is a directory");
		if (!primary && entry->kind == 'h') {
			if (merge_resolve(merge, one.link, layer, entry->target, entry->target_length, err))
				return -1;
			waits = true;
			continue;
		}
		if (!primary) {
			primary = one.link;
			at(merge, primary)->kind = entry->kind;
			at(merge, primary)->link = primary;
			at(merge, primary)->flags &= (uint8_t)~IMAGE_PENDING;
			if (merge_tell(merge, primary, entry, content, err))
				return -1;
		} else if (merge_tell_link(merge, one.link, primary, err)) {
			return -1;
		}
		/* Links to the link wait for it. */
		if (at(merge, one.link)->flags & IMAGE_IS_AWAITED &&
		    merge_arrived(merge, at(merge, one.link)->claimed, one.link, entry, NULL, primary, false, err))
			return -1;
	}
	if (!waits)
		at(merge, target)->flags &= (uint8_t)~IMAGE_IS_AWAITED;
	return 0;
}

bool image_merge_wants_again(const struct image_merge *merge, unsigned layer)
{
	for (size_t i = 0; merge->n_hidden && i < merge->n_awaiting; i++)
		if (!merge->awaiting[i].done && merge->awaiting[i].hidden && merge->awaiting[i].layer == layer)
			return true;
	return false;
}

bool image_merge_again_ended(struct image_merge *merge, unsigned layer)
{
	bool progress = merge->progress && ++merge->passes < PASSES_MOST;

	merge->progress = false;
	if (!progress)
		merge->passes = 0;
	for (size_t i = 0; !progress && i < merge->n_awaiting; i++)
		if (merge->awaiting[i].layer == layer && !merge->awaiting[i].done && merge->awaiting[i].hidden) {
			merge->awaiting[i].hidden = false;
			merge->n_hidden--;
		}
	return progress;
}

int image_merge_end(struct image_merge *merge, struct image_error *err)
{
	char target[IMAGE_PATH_LONGEST + 1] = "", link[IMAGE_PATH_LONGEST + 1] = "";

	for (size_t i = 0; i < merge->n_awaiting; i++) {
		if (merge->awaiting[i].done)
			continue;
		image_tree_path(merge->tree, merge->awaiting[i].target, target, sizeof(target));
		image_tree_path(merge->tree, merge->awaiting[i].link, link, sizeof(link));
		return image_fail(err, IMAGE_FAULT_SOURCE, link, "is a hard link to /%.300s, which is no file", target);
	}
	return 0;
}
