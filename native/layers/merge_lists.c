/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps, while layers are merged, lists of hard links: those that wait for a file, and the names that a file has.
 * merge.c and merge_links.c call it. */
#define _GNU_SOURCE
#include "merge_lists.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LISTS_CHUNK_BITS 12
#define LISTS_CHUNK (1u << LISTS_CHUNK_BITS)

/* Of one node; 0: none. Numbers of waiting links begin at 1. */
struct lists {
	uint32_t first_waiting, last_waiting; /* links that wait for what comes here */
	uint32_t waits;                       /* a link: what it waits by */
	uint32_t first_link, next_link, previous_link;
};

static struct lists *lists_of(const struct merge_lists *all, uint32_t node)
{
	size_t chunk = node >> LISTS_CHUNK_BITS;

	return chunk < all->n_chunks && all->chunks[chunk] ? &all->chunks[chunk][node & (LISTS_CHUNK - 1)] : NULL;
}

static struct lists *make_lists(struct merge_lists *all, uint32_t node)
{
	size_t chunk = node >> LISTS_CHUNK_BITS;

	if (chunk >= all->n_chunks) {
		size_t capacity = chunk + 1 > 2 * all->n_chunks ? chunk + 1 : 2 * all->n_chunks;
		struct lists **chunks = reallocarray(all->chunks, capacity, sizeof(struct lists *));

		if (!chunks)
			return NULL;
		memset(chunks + all->n_chunks, 0, (capacity - all->n_chunks) * sizeof(struct lists *));
		all->chunks = chunks;
		all->n_chunks = capacity;
	}
	if (!all->chunks[chunk])
		all->chunks[chunk] = image_spill_take(all->spill, LISTS_CHUNK * sizeof(struct lists));
	return lists_of(all, node);
}

void merge_lists_free(struct merge_lists *all)
{
	for (size_t i = 0; i < all->n_chunks; i++)
		image_spill_give(all->spill, all->chunks[i]);
	free(all->chunks);
	free(all->waiting);
}

int merge_lists_wait(struct merge_lists *all, const struct waiting *one)
{
	struct lists *target = make_lists(all, one->target), *link = make_lists(all, one->link);

	if (all->n_waiting == all->capacity) {
		size_t capacity = all->capacity ? 2 * all->capacity : 64;
		struct waiting *more = capacity < UINT32_MAX ? reallocarray(all->waiting, capacity, sizeof(*more)) : NULL;

		if (!more)
			return -1;
		all->waiting = more;
		all->capacity = capacity;
	}
	if (!target || !link)
		return -1;
	all->waiting[all->n_waiting++] = *one;
	link->waits = (uint32_t)all->n_waiting;
	if (target->last_waiting)
		all->waiting[target->last_waiting - 1].next = link->waits;
	else
		target->first_waiting = link->waits;
	target->last_waiting = link->waits;
	return 0;
}

uint32_t merge_lists_waits(const struct merge_lists *all, uint32_t link)
{
	const struct lists *lists = lists_of(all, link);

	return lists ? lists->waits : 0;
}

uint32_t merge_lists_first(const struct merge_lists *all, uint32_t target)
{
	const struct lists *lists = lists_of(all, target);

	return lists ? lists->first_waiting : 0;
}

uint32_t merge_lists_last(const struct merge_lists *all, uint32_t target)
{
	const struct lists *lists = lists_of(all, target);

	return lists ? lists->last_waiting : 0;
}

void merge_lists_drop(struct merge_lists *all, uint32_t target, uint32_t before, uint32_t number)
{
	struct lists *lists = lists_of(all, target);
	uint32_t next = all->waiting[number - 1].next;

	if (before)
		all->waiting[before - 1].next = next;
	else
		lists->first_waiting = next;
	if (lists->last_waiting == number)
		lists->last_waiting = before;
}

int merge_lists_join(struct merge_lists *all, uint32_t primary, uint32_t link)
{
	struct lists *of_primary = make_lists(all, primary), *of_link = make_lists(all, link);
	struct lists *next;

	if (!of_primary || !of_link)
		return -1;
	of_link->previous_link = primary;
	of_link->next_link = of_primary->first_link;
	next = of_link->next_link ? lists_of(all, of_link->next_link) : NULL;
	if (next)
		next->previous_link = link;
	of_primary->first_link = link;
	return 0;
}

void merge_lists_leave(struct merge_lists *all, uint32_t primary, uint32_t link)
{
	struct lists *lists = lists_of(all, link);

	if (!lists || !lists->previous_link)
		return;
	if (lists->previous_link == primary)
		lists_of(all, primary)->first_link = lists->next_link;
	else
		lists_of(all, lists->previous_link)->next_link = lists->next_link;
	if (lists->next_link)
		lists_of(all, lists->next_link)->previous_link = lists->previous_link;
	lists->previous_link = lists->next_link = 0;
}

uint32_t merge_lists_link(const struct merge_lists *all, uint32_t primary)
{
	const struct lists *lists = lists_of(all, primary);

	return lists ? lists->first_link : 0;
}

uint32_t merge_lists_next_link(const struct merge_lists *all, uint32_t link)
{
	return lists_of(all, link)->next_link;
}

void merge_lists_inherit(struct merge_lists *all, uint32_t primary)
{
	struct lists *old = lists_of(all, primary), *heir = lists_of(all, old->first_link);
	struct lists *second = heir->next_link ? lists_of(all, heir->next_link) : NULL;

	if (second)
		second->previous_link = old->first_link;
	heir->first_link = heir->next_link;
	heir->next_link = heir->previous_link = 0;
	old->first_link = 0;
}
