/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a stream of blocks into the records of a tar archive, 512 bytes each. tar.c and tar_sparse.c call it. */
#define _GNU_SOURCE
#include "tar_reader.h"

int tar_malformed(struct image_tar *tar, struct image_error *err, const char *what)
{
	return image_fail(err, IMAGE_FAULT_SOURCE, tar->entry.path, "malformed tar: %s", what);
}

int tar_fill(struct image_tar *tar, struct image_error *err)
{
	while (!tar->block || tar->at == tar->block->length) {
		int got;

		image_block_release(tar->block);
		tar->block = NULL;
		tar->at = 0;
		got = tar->input.next(tar->input.context, &tar->block, err);
		if (got <= 0) {
			tar->block = NULL;
			return got;
		}
	}
	return 1;
}

int tar_cut_off(struct image_error *err)
{
	return image_fail(err, IMAGE_FAULT_SOURCE, "", "the tar's end is missing: it was cut off");
}

int tar_next_record(struct image_tar *tar, const void **record, struct image_error *err)
{
	int got = tar_fill(tar, err);

	if (got <= 0)
		return got;
	if (tar->block->length - tar->at < TAR_RECORD)
		return tar_cut_off(err);
	*record = tar->block->data + tar->at;
	tar->at += TAR_RECORD;
	return 1;
}
