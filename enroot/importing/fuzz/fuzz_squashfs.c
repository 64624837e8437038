/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the whole import: two tars as an image's layers are refused with a reason, or give a valid squashfs. The
 * last byte says where the second tar begins. Checksums of the tars are corrected first. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "native/testing/fuzz.h"
#include "native/squashfs/format.h"
#include "native/squashfs/squashfs.h"
#include "native/layers/tests/memory_tar.h"

static int next_slice(void *context, struct image_slice *slice, struct image_error *err)
{
	return image_tar_data(context, slice, err);
}

static int read_layer(struct image_merge *merge, unsigned layer, const uint8_t *data, size_t size, struct image_error *err)
{
	struct memory memory;
	const struct image_entry *entry;

	memory_open(&memory, data, size, 1024);
	struct image_input input = { memory_next, &memory };
	struct image_tar *tar = image_tar_new(&input, err);
	struct image_content content = { next_slice, tar };
	int got = 1;
	while (got > 0 && (got = image_tar_next(tar, &entry, err)) > 0)
		/* A hole of terabytes is a list of millions of blocks: right, and slow. */
		if (entry->size > 1 << 24)
			got = image_fail(err, IMAGE_FAULT_SOURCE, entry->path, "too large for a fuzz target");
		else if (image_merge_entry(merge, layer, entry, &content, err))
			got = -1;
	while (image_merge_wants_again(merge, layer) && image_merge_again_ended(merge, layer))
		;
	image_tar_free(tar);
	image_pool_destroy(&memory.pool);
	return got;
}

static uint64_t number(const unsigned char *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

/* The tables follow each other and end within the image. */
static void check_image(int fd, const struct squashfs_summary *summary)
{
	unsigned char block[SQUASHFS_SUPERBLOCK];
	uint64_t last = SQUASHFS_SUPERBLOCK;

	MUST(pread(fd, block, sizeof(block), 0) == sizeof(block));
	MUST(!memcmp(block, "hsqs", 4));
	/* Inodes, directories, fragments, exports, owners, then the end. */
	for (const int *at = (const int[]){ 64, 72, 80, 88, 48, 40, 0 }; *at; at++) {
		MUST(number(block + *at) >= last);
		last = number(block + *at);
	}
	MUST(last <= summary->bytes && (uint64_t)lseek(fd, 0, SEEK_END) == summary->bytes);
	MUST(number(block + 32) >> 16 < number(block + 72) - number(block + 64));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct squashfs_options options = { .compression = SQUASHFS_LZ4, .level = 1, .block_size = 4096, .jobs = 1,
					    .newest = INT64_MAX };
	struct squashfs_summary summary;
	struct image_error err = { .fault = IMAGE_FAULT_NONE };
	int fd = memfd_create("fuzz", MFD_CLOEXEC), result;
	size_t length = size ? size - 1 : 0, upper = size ? length * data[length] / 255 / 512 * 512 : 0;
	unsigned char *tars = malloc(length + 1);

	MUST(fd >= 0 && tars);
	memcpy(tars, data, length);
	memory_fix_checksums(tars, length);
	struct image_tree *tree = image_tree_new("/tmp", IMAGE_MEMORY_IMPORT, &err);
	struct image_records *records = image_records_new("/tmp", &err);
	struct squashfs *squashfs = squashfs_new(tree, records, fd, &options, &err);
	MUST(squashfs);
	struct image_sink sink = squashfs_sink(squashfs);
	struct image_merge *merge = image_merge_new(tree, &sink, &err);
	result = !size || read_layer(merge, 0, tars, upper, &err) ||
		 read_layer(merge, 1, tars + upper, length - upper, &err) || image_merge_end(merge, &err) ||
		 squashfs_finish(squashfs, &summary, &err);
	if (!result)
		check_image(fd, &summary);
	else if (size)
		MUST(err.message[0] || err.syscall[0]);
	image_merge_free(merge);
	squashfs_free(squashfs);
	image_records_free(records);
	image_tree_free(tree);
	free(tars);
	close(fd);
	return 0;
}
