/* SPDX-License-Identifier: Apache-2.0 */
/* A sink: receives the files of a merged image and writes them, to a directory or a squashfs image. One thread calls
 * it.
 *
 * The merge calls in the order in which the layers say things, from the top layer down: a directory may be told of
 * after what is in it (or twice: the later counts), and a directory that no layer describes is told of at the end.
 * Nothing that a higher layer hides is ever told.
 */
#ifndef IMAGE_SINK_H
#define IMAGE_SINK_H

#include "entry.h"
#include "error.h"

struct image_sink_operations {
	/* A directory's owner, mode, time and attributes. */
	int (*folder)(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err);
	/* A link, fifo or device. */
	int (*special)(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err);
	/* A regular file: then every slice of its content in rising order, then the end. */
	int (*file)(void *sink, uint32_t node, const struct image_entry *entry, struct image_error *err);
	int (*slice)(void *sink, const struct image_slice *slice, struct image_error *err);
	int (*file_end)(void *sink, struct image_error *err);
	/* `node` is another name of `primary`, which was told of before. */
	int (*link)(void *sink, uint32_t node, uint32_t primary, struct image_error *err);
	/* What was told of `node` is replaced: by what comes next, or taken over by `heir`, a link of it so far
	 * (IMAGE_ROOT: there is none). */
	int (*replace)(void *sink, uint32_t node, uint32_t heir, struct image_error *err);
};

struct image_sink {
	const struct image_sink_operations *operations;
	void *context;
};

#endif
