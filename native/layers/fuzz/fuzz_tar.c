/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of tar archives: any bytes are refused with a reason, or each entry fits into a tree. Checksums
 * are corrected first, or no input would get past them. */
#include "native/layers/tests/memory_tar.h"
#include "native/testing/fuzz.h"

static void check_path(const char *path, size_t length)
{
	MUST(strlen(path) == length && length <= IMAGE_PATH_LONGEST);
	for (const char *part = path; length; part = strchr(part, '/') + 1) {
		size_t size = strcspn(part, "/");

		MUST(size && size <= IMAGE_NAME_LONGEST);
		MUST(!(size == 1 && *part == '.') && !(size == 2 && !strncmp(part, "..", 2)));
		if (!part[size])
			break;
	}
}

static void check_entry(struct image_tar *tar, const struct image_entry *entry)
{
	struct image_slice slice;
	struct image_error err;
	struct image_xattr xattr;
	uint64_t end = 0;

	MUST(strchr("dflpcbh", entry->kind));
	check_path(entry->path, entry->path_length);
	if (entry->kind == 'h')
		check_path(entry->target, entry->target_length);
	MUST((entry->mode & ~07777u) == 0 && entry->size <= INT64_MAX);
	for (size_t offset = 0; image_xattrs_next(entry->xattrs, entry->xattrs_length, &offset, &xattr);)
		MUST(xattr.name_length && xattr.name_length < 256 && xattr.value_length <= 65536);
	while (image_tar_data(tar, &slice, &err) > 0) {
		MUST(slice.length && slice.offset >= end);
		end = slice.offset + slice.length;
		MUST(end <= entry->size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned char *copy = malloc(size + 1);
	struct memory memory;
	struct image_input input = { memory_next, &memory };
	const struct image_entry *entry;
	struct image_error err;
	int got;

	MUST(copy);
	memcpy(copy, data, size);
	memory_fix_checksums(copy, size);
	memory_open(&memory, copy, size, 1024);
	struct image_tar *tar = image_tar_new(&input, &err);

	while ((got = image_tar_next(tar, &entry, &err)) > 0)
		check_entry(tar, entry);
	MUST(got == 0 || (err.fault == IMAGE_FAULT_SOURCE && err.message[0]) || err.fault == IMAGE_FAULT_SYSTEM);
	image_tar_free(tar);
	image_pool_destroy(&memory.pool);
	free(copy);
	return 0;
}
