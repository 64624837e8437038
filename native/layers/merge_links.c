/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files that hard links of a layer mean, while layers are merged: the file may come later, or be hidden by
 * a higher layer. merge.c calls it. */
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
	const struct waiting one = { .target = target, .link = link, .layer = (uint16_t)layer, .hidden = hidden };

	if (merge_lists_wait(&merge->lists, &one))
		return image_fail_memory(err);
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

	if (!length || (target == link && node->claimed == layer))
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

/* Links to the link wait for it. They are looked at later: a chain of them is as long as the layer likes. */
static int note_arrived(struct image_merge *merge, uint32_t link, struct image_error *err)
{
	if (merge->n_arrived == merge->arrived_capacity) {
		size_t capacity = merge->arrived_capacity ? 2 * merge->arrived_capacity : 64;
		uint32_t *more = reallocarray(merge->arrived, capacity, sizeof(*more));

		if (!more)
			return image_fail_memory(err);
		merge->arrived = more;
		merge->arrived_capacity = capacity;
	}
	merge->arrived[merge->n_arrived++] = link;
	return 0;
}

/* One link that waited has what it waited for, or has to wait for what that is a link to. */
static int give(struct image_merge *merge, unsigned layer, uint32_t link, const struct image_entry *entry,
		const struct image_content *content, uint32_t *primary, struct image_error *err)
{
	if (entry->kind == 'd')
		return image_fail(err, IMAGE_FAULT_SOURCE, entry->path, "is named by a hard link, and is a directory");
	if (!*primary && entry->kind == 'h')
		return merge_resolve(merge, link, layer, entry->target, entry->target_length, err);
	if (!*primary) {
		*primary = link;
		at(merge, link)->kind = entry->kind;
		at(merge, link)->link = link;
		at(merge, link)->flags &= (uint8_t)~IMAGE_PENDING;
		if (merge_tell(merge, link, entry, content, err))
			return -1;
	} else if (merge_tell_link(merge, link, *primary, err)) {
		return -1;
	}
	return at(merge, link)->flags & IMAGE_IS_AWAITED ? note_arrived(merge, link, err) : 0;
}

static int arrive(struct image_merge *merge, unsigned layer, uint32_t target, const struct image_entry *entry,
		  const struct image_content *content, uint32_t *primary, bool again, struct image_error *err)
{
	struct merge_lists *lists = &merge->lists;
	/* Those that are added meanwhile wait for another. */
	uint32_t number = merge_lists_first(lists, target), last = merge_lists_last(lists, target), before = 0;
	bool ended = !number;

	while (!ended) {
		const struct waiting one = lists->waiting[number - 1];

		ended = number == last;
		if (!one.done && (again ? one.layer != layer : one.layer >= layer)) {
			if (!again)
				break; /* so do those behind it */
			before = number;
		} else {
			lists->waiting[number - 1].done = true;
			merge_lists_drop(lists, target, before, number);
			merge->n_hidden -= !one.done && one.hidden;
			merge->progress |= !one.done;
			if (!one.done && give(merge, layer, one.link, entry, content, primary, err))
				return -1;
		}
		number = one.next;
	}
	if (!merge_lists_first(lists, target))
		at(merge, target)->flags &= (uint8_t)~IMAGE_IS_AWAITED;
	return 0;
}

int merge_arrived(struct image_merge *merge, unsigned layer, uint32_t target, const struct image_entry *entry,
		   const struct image_content *content, uint32_t primary, bool again, struct image_error *err)
{
	merge->n_arrived = 0;
	if (arrive(merge, layer, target, entry, content, &primary, again, err))
		return -1;
	while (merge->n_arrived) {
		uint32_t link = merge->arrived[--merge->n_arrived];

		if (arrive(merge, at(merge, link)->claimed + 1u, link, entry, NULL, &primary, false, err))
			return -1;
	}
	return 0;
}

bool image_merge_wants_again(const struct image_merge *merge, unsigned layer)
{
	for (size_t i = 0; merge->n_hidden && i < merge->lists.n_waiting; i++)
		if (!merge->lists.waiting[i].done && merge->lists.waiting[i].hidden && merge->lists.waiting[i].layer == layer)
			return true;
	return false;
}

bool image_merge_again_ended(struct image_merge *merge, unsigned layer)
{
	bool progress = merge->progress && ++merge->passes < PASSES_MOST;

	merge->progress = false;
	if (!progress)
		merge->passes = 0;
	for (size_t i = 0; !progress && i < merge->lists.n_waiting; i++)
		if (merge->lists.waiting[i].layer == layer && !merge->lists.waiting[i].done && merge->lists.waiting[i].hidden) {
			merge->lists.waiting[i].hidden = false;
			merge->n_hidden--;
		}
	return progress;
}

int image_merge_end(struct image_merge *merge, struct image_error *err)
{
	char target[IMAGE_PATH_LONGEST + 1] = "", link[IMAGE_PATH_LONGEST + 1] = "";

	for (size_t i = 0; i < merge->lists.n_waiting; i++) {
		if (merge->lists.waiting[i].done)
			continue;
		image_tree_path(merge->tree, merge->lists.waiting[i].target, target, sizeof(target));
		image_tree_path(merge->tree, merge->lists.waiting[i].link, link, sizeof(link));
		return image_fail(err, IMAGE_FAULT_SOURCE, link, "is a hard link to /%.300s, which is no file", target);
	}
	return 0;
}
