/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of hard links that the merge of layers keeps: those that wait for a file, and the names that a file has. Each
 * question takes the same time however many links a layer has. Only the merge uses it. */
#ifndef IMAGE_MERGE_LISTS_H
#define IMAGE_MERGE_LISTS_H

#include <stdbool.h>

#include "spill.h"

/* A hard link that waits for the file that it names. */
struct waiting {
	uint32_t target, link;
	uint32_t next; /* of those that wait for `target`; 0: the last. Their layers rise. */
	uint16_t layer;
	bool hidden; /* a higher layer has something else at `target`: it may have passed already */
	bool done;
};

struct lists;

/* Begins with zeros and `spill`. */
struct merge_lists {
	struct image_spill *spill;
	struct lists **chunks;
	size_t n_chunks;
	struct waiting *waiting; /* number N is [N - 1] */
	size_t n_waiting, capacity;
};

void merge_lists_free(struct merge_lists *all);

/* Adds one, as the last of its target's. 0, or -1: there is no memory. */
int merge_lists_wait(struct merge_lists *all, const struct waiting *one);
/* The number that `link` waits by, or did last; 0: it never waited. */
uint32_t merge_lists_waits(const struct merge_lists *all, uint32_t link);
/* The first and the last of those that wait for `target`; 0: nobody does. */
uint32_t merge_lists_first(const struct merge_lists *all, uint32_t target);
uint32_t merge_lists_last(const struct merge_lists *all, uint32_t target);
/* Takes `number` off `target`'s list, in which it comes after `before` (0: it is the first). */
void merge_lists_drop(struct merge_lists *all, uint32_t target, uint32_t before, uint32_t number);

/* `link` is one more name of `primary`. 0, or -1: there is no memory. */
int merge_lists_join(struct merge_lists *all, uint32_t primary, uint32_t link);
/* It is one no longer, if it was. */
void merge_lists_leave(struct merge_lists *all, uint32_t primary, uint32_t link);
/* The latest further name of `primary`, and the one before another; 0: there is none. */
uint32_t merge_lists_link(const struct merge_lists *all, uint32_t primary);
uint32_t merge_lists_next_link(const struct merge_lists *all, uint32_t link);
/* The latest name of `primary` has the others from now on. */
void merge_lists_inherit(struct merge_lists *all, uint32_t primary);

#endif
