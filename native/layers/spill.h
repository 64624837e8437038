/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for tables with millions of entries. Up to a limit it is plain memory, beyond that a mapped temporary file
 * without a name.
 *
 * The kernel can write such memory out when it needs it, and image_spill_tend gives it back beyond a bound, so that a
 * process stays small however long its tables are. The content stays in the page cache, or on disk, until it is used
 * again. One thread takes and tends; any may use what was taken.
 */
#ifndef IMAGE_SPILL_H
#define IMAGE_SPILL_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

struct image_spill;

/* `folder` is a directory on a local file system; the file is made there once more than `memory` bytes are taken, and
 * `mapped` bytes of it may be in memory. */
struct image_spill *image_spill_new(const char *folder, size_t memory, size_t mapped, struct image_error *err);
/* Frees all that was taken and not given back, too. */
void image_spill_free(struct image_spill *spill);

/* Zeros; NULL: there is no memory, or no room for the file (errno says which). */
void *image_spill_take(struct image_spill *spill, size_t size);
/* Frees what was taken; NULL is nothing. */
void image_spill_give(struct image_spill *spill, void *memory);

void image_spill_look(struct image_spill *spill);

struct image_spill_meter {
	unsigned passed;
	int fd; /* -1: there is no file yet, so nothing to give back */
};

/* To be called for each entry that is touched: it looks at every 64th. */
static inline void image_spill_tend(struct image_spill *spill)
{
	struct image_spill_meter *meter = (struct image_spill_meter *)spill;

	if (meter->fd >= 0 && !(++meter->passed & 63))
		image_spill_look(spill);
}

/* One more file without a name, beside that of the tables; -1 with errno. */
int image_spill_another(const struct image_spill *spill);

/* A file in `folder` that has no name, or -1 with errno. */
int image_spill_file(const char *folder);

#endif
