/* SPDX-License-Identifier: Apache-2.0 */
/* Writes small files, links, fifos and devices of an image in batches of some dozens, one batch per thread at a time.
 * directory.c queues it. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "parts.h"
#include "native/layers/sha256_many.h"

static void hash_batch(struct batch *batch)
{
	struct sha256_one all[BATCH_ITEMS];
	size_t count = 0;

	for (unsigned i = 0; i < batch->count; i++) {
		struct item *item = &batch->items[i];

		if (item->kind == 'f')
			all[count++] = (struct sha256_one){ item->data, item->record.size, item->record.digest };
	}
	image_sha256_many(all, count);
}

/* Files of one folder mostly are nodes that follow each other: then it is one call for the batch. */
static int put_records(const struct batch *batch, struct image_error *err)
{
	struct image_record run[BATCH_ITEMS];
	uint32_t first = 0;
	size_t count = 0;

	for (unsigned i = 0; i < batch->count; i++) {
		const struct item *item = &batch->items[i];

		if (count && item->node != first + count) {
			if (image_records_put_run(batch->directory->records, first, run, count, err))
				return -1;
			count = 0;
		}
		if (!count)
			first = item->node;
		run[count++] = item->record;
	}
	return count ? image_records_put_run(batch->directory->records, first, run, count, err) : 0;
}

int batch_run(struct image_job *job, void *state, bool stopped, struct image_error *err)
{
	struct batch *batch = (struct batch *)job;
	struct image_directory *directory = batch->directory;
	int result = 0;

	if (!stopped)
		hash_batch(batch);
	for (unsigned i = 0; i < batch->count; i++) {
		struct item *item = &batch->items[i];

		if (!stopped && !result) {
			result = directory->request.pick ? pick_small(directory, item, err)
				 : item->kind == 'f' ? write_small(directory, state, item, err)
						     : write_special(directory, state, item, err);
			if (!result && item->kind == 'f') {
				atomic_fetch_add(&directory->counts.files, 1);
				atomic_fetch_add(&directory->counts.bytes, item->record.size);
			}
		}
	}
	if (!stopped && !result)
		result = put_records(batch, err);
	for (unsigned i = 0; i < batch->count; i++)
		item_release(directory, &batch->items[i]);
	free(batch);
	return result;
}
