/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a metadata table of squashfs has the same bytes whether it is kept in memory, in a temporary file, or
 * written at once. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native/squashfs/metadata.h"
#include "native/testing/check.h"

#define OFFSET 100u

static int fill(struct squashfs_metadata *table, size_t length, struct image_error *err)
{
	uint32_t random = 1;

	for (size_t done = 0; done < length; done += sizeof(random)) {
		random = random * 1664525u + 1013904223u;
		if (squashfs_metadata_add(table, &random, sizeof(random), err))
			return -1;
	}
	return 0;
}

static int is_same(int a, int b, size_t length)
{
	unsigned char *left = mmap(NULL, length, PROT_READ, MAP_SHARED, a, 0);
	unsigned char *right = mmap(NULL, length, PROT_READ, MAP_SHARED, b, 0);
	int result = left != MAP_FAILED && right != MAP_FAILED && !memcmp(left, right, length);

	munmap(left, length);
	munmap(right, length);
	return result;
}

static void test_length(struct image_spill *spill, size_t length, int spilled)
{
	int fds[3];
	struct image_error err;
	struct squashfs_metadata plain = { .compressor = NULL }, filed = { .spill = spill }, written = { .in_file = true };

	for (int i = 0; i < 3; i++)
		fds[i] = memfd_create("table", MFD_CLOEXEC);
	written.fd = fds[2];
	written.offset = OFFSET;
	CHECK(!fill(&plain, length, &err) && !fill(&filed, length, &err) && !fill(&written, length, &err));
	CHECK(!squashfs_metadata_write(&plain, fds[0], OFFSET, &err));
	CHECK(!squashfs_metadata_write(&filed, fds[1], OFFSET, &err));
	CHECK(!squashfs_metadata_end(&written, &err));
	CHECK(filed.nameless == spilled && !plain.in_file);
	CHECK(plain.length == filed.length && plain.length == written.length);
	CHECK((size_t)lseek(fds[0], 0, SEEK_END) == (length ? OFFSET + plain.length : 0));
	for (int i = 1; i < 3 && length; i++)
		CHECK(is_same(fds[0], fds[i], OFFSET + plain.length));
	squashfs_metadata_free(&plain);
	squashfs_metadata_free(&filed);
	squashfs_metadata_free(&written);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

int main(void)
{
	struct image_error err;
	struct image_spill *spill = image_spill_new("/tmp", 0, 0, &err);

	CHECK(spill);
	test_length(spill, 0, 0);
	test_length(spill, 20, 0);
	test_length(spill, 300 << 10, 0);
	test_length(spill, (4 << 20) + (400 << 10) + 4, 1);
	test_length(spill, 9 << 20, 1);
	image_spill_free(spill);
	return check_result("metadata");
}
