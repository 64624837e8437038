/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of layer listings: any bytes are refused, or give whole entries. If the first byte is even, the
 * rest is set between a right head and a right checksum; libFuzzer could not guess these. If it is odd, the rest is
 * the whole file. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native/layers/hash.h"
#include "native/layers/listing.h"
#include "native/testing/fuzz.h"

#define MAGIC "cellblock-layer-listing 1\n"

static void add(int fd, struct image_hash *hash, const void *data, size_t length)
{
	image_hash_add(hash, data, length);
	MUST(write(fd, data, length) == (ssize_t)length);
}

static void read_all(const unsigned char *data, size_t length)
{
	for (size_t i = 0; i < length; i++)
		(void)*(const volatile unsigned char *)(data + i);
}

static void check_entry(const struct image_entry *entry, size_t size)
{
	MUST(entry->path_length <= IMAGE_PATH_LONGEST && !entry->path[entry->path_length]);
	MUST(entry->target_length <= IMAGE_PATH_LONGEST && !entry->target[entry->target_length]);
	MUST(entry->xattrs_length <= size);
	MUST(!entry->digest || !entry->absent);
	read_all(entry->xattrs, entry->xattrs_length);
	if (entry->digest)
		read_all(entry->digest, 32);
}

/* Whether all of it is a listing's head, anything, and the checksum of both. */
static bool is_listing(const uint8_t *data, size_t size)
{
	unsigned char digest[32];
	struct image_hash hash;

	if (size < sizeof(MAGIC) - 1 + sizeof(digest) || memcmp(data, MAGIC, sizeof(MAGIC) - 1))
		return false;
	MUST(!image_hash_begin(&hash));
	image_hash_add(&hash, data, size - sizeof(digest));
	image_hash_end(&hash, digest);
	return !memcmp(digest, data + size - sizeof(digest), sizeof(digest));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image_error err = { .fault = IMAGE_FAULT_NONE };
	struct image_listing_reader *reader;
	const struct image_entry *entry;
	unsigned char digest[32];
	struct image_hash hash;
	size_t count = 0;
	int fd = memfd_create("listing", MFD_CLOEXEC), got = -1;
	bool whole = size && !(data[0] & 1);

	MUST(fd >= 0 && !image_hash_begin(&hash));
	if (whole)
		add(fd, &hash, MAGIC, sizeof(MAGIC) - 1);
	add(fd, &hash, data + !!size, size - !!size);
	image_hash_end(&hash, digest);
	MUST(!whole || write(fd, digest, sizeof(digest)) == sizeof(digest));
	reader = image_listing_open(fd, &err);
	MUST(!reader == !(whole || (size && is_listing(data + 1, size - 1))));
	while (reader && (got = image_listing_next(reader, &entry, &err)) > 0) {
		check_entry(entry, size);
		MUST(++count <= size);
	}
	MUST(got == 0 || (err.fault == IMAGE_FAULT_ABSENT && err.message[0]));
	image_listing_close(reader);
	close(fd);
	return 0;
}
