/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a directory on disk in the form in which the tar reader gives a layer: sorted entries, and their content.
 *
 * Directories on other file systems are entered like any other. Sockets are left out: one means something only to the
 * process that listens on it.
 */
#ifndef IMAGE_WALK_H
#define IMAGE_WALK_H

#include <stdatomic.h>

#include "native/layers/entry.h"
#include "native/layers/xattrs.h"

struct image_walk;

/* `counter` grows by the bytes that were read. */
struct image_walk *image_walk_new(const char *path, struct image_pool *pool, atomic_ullong *counter,
				  const struct image_interrupt *interrupt, struct image_error *err);
void image_walk_free(struct image_walk *walk);

/* As image_tar_next. A file that is not what it was said to be is IMAGE_FAULT_CHANGED. */
int image_walk_next(struct image_walk *walk, const struct image_entry **entry, struct image_error *err);

/* As image_tar_data; `context` is the walk. */
int image_walk_data(void *context, struct image_slice *slice, struct image_error *err);

#endif
