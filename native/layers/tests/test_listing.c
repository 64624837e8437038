/* SPDX-License-Identifier: Apache-2.0 */
/* Tests layer listings: what was written is read back, and a shortened, changed or foreign file is refused. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/layers/hash.h"
#include "native/layers/listing.h"
#include "native/testing/check.h"

static struct image_error err;

static int new_file(void)
{
	return memfd_create("listing", MFD_CLOEXEC);
}

static struct image_entry entry_of(char kind, const char *path, const char *target, uint64_t size)
{
	return (struct image_entry){
		.kind = kind, .path = path, .path_length = strlen(path), .target = target, .target_length = strlen(target),
		.mode = 06755, .uid = 1000, .gid = UINT32_MAX, .major = 7, .minor = 9, .size = size, .mtime_ns = -1,
		.xattrs = (const unsigned char *)"\2\0\1\0\0\0abc", .xattrs_length = 9,
	};
}

/* Two files with content, of which a higher layer hid the second, and a few without. */
static int write_listing(int fd, bool give_up)
{
	const struct image_entry all[] = {
		entry_of('d', "", "", 0), entry_of('f', "a", "", 5), entry_of('f', "hidden", "", 6),
		entry_of('f', "empty", "", 0), entry_of('l', "link", "to/anywhere", 11), entry_of('h', "b", "a", 0),
		entry_of('f', ".wh.gone", "", 0),
	};
	struct image_records *records = image_records_new("/tmp", &err);
	struct image_listing *listing = image_listing_new(fd, &err);
	struct image_record record = { .known = 1 };
	int result = 0;

	memset(record.digest, 0xab, sizeof(record.digest));
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		result |= image_listing_add(listing, &all[i], i == 1 ? 42 : 0, &err);
	result |= image_records_put(records, 42, &record, &err);
	if (give_up)
		image_listing_give_up(listing);
	result |= image_listing_finish(listing, records, &err);
	image_listing_free(listing);
	image_records_free(records);
	return result;
}

static bool is_refused(int fd)
{
	struct image_listing_reader *reader;

	err = (struct image_error){ .fault = IMAGE_FAULT_NONE };
	reader = image_listing_open(fd, &err);
	image_listing_close(reader);
	return !reader && err.fault == IMAGE_FAULT_ABSENT;
}

static void test_what_was_written_is_read(void)
{
	static const char *const paths[] = { "", "a", "hidden", "empty", "link", "b", ".wh.gone" };
	const struct image_entry *entry;
	struct image_listing_reader *reader;
	unsigned char expected[32];
	int fd = new_file(), count = 0;

	memset(expected, 0xab, sizeof(expected));
	CHECK(!write_listing(fd, false));
	reader = image_listing_open(fd, &err);
	CHECK(reader);
	while (reader && image_listing_next(reader, &entry, &err) > 0) {
		CHECK(count < 7 && !strcmp(entry->path, paths[count]) && entry->path_length == strlen(entry->path));
		CHECK(entry->mode == 06755 && entry->uid == 1000 && entry->gid == UINT32_MAX && entry->mtime_ns == -1);
		CHECK(entry->major == 7 && entry->minor == 9 && entry->xattrs_length == 9 && !memcmp(entry->xattrs + 6, "abc", 3));
		CHECK(entry->target_length == strlen(entry->target));
		if (count == 4)
			CHECK(entry->kind == 'l' && !strcmp(entry->target, "to/anywhere"));
		CHECK(!entry->digest == (count != 1));
		if (entry->digest)
			CHECK(!memcmp(entry->digest, expected, 32));
		CHECK(entry->absent == (count == 2));
		count++;
	}
	CHECK(count == 7);
	CHECK(reader && image_listing_next(reader, &entry, &err) == 0);
	image_listing_close(reader);
	close(fd);
}

static void test_what_is_not_whole_is_refused(void)
{
	int fd = new_file();
	struct stat status;
	unsigned char byte;

	CHECK(is_refused(fd));
	CHECK(!write_listing(fd, false) && !fstat(fd, &status));
	for (off_t length = status.st_size - 1; length > 0; length -= 37)
		CHECK(!ftruncate(fd, length) && is_refused(fd));
	CHECK(!ftruncate(fd, 0) && !write_listing(fd, false));
	for (off_t at = 0; at < status.st_size; at += 11) {
		CHECK(pread(fd, &byte, 1, at) == 1);
		byte ^= 4;
		CHECK(pwrite(fd, &byte, 1, at) == 1 && is_refused(fd));
		byte ^= 4;
		CHECK(pwrite(fd, &byte, 1, at) == 1);
	}
	CHECK(!is_refused(fd));
	close(fd);
}

static void test_a_layer_that_no_listing_can_tell_leaves_it_empty(void)
{
	int fd = new_file();
	struct stat status;

	CHECK(!write_listing(fd, true));
	CHECK(!fstat(fd, &status) && status.st_size == 0);
	CHECK(is_refused(fd));
	close(fd);
}

static void test_one_longer_than_the_buffer(void)
{
	struct image_records *records = image_records_new("/tmp", &err);
	int fd = new_file(), count = 0;
	struct image_listing *listing = image_listing_new(fd, &err);
	struct image_listing_reader *reader;
	const struct image_entry *entry;
	char path[4096];

	for (int i = 0; i < 600; i++) {
		struct image_entry one;

		memset(path, 'a' + i % 26, 4095);
		path[4095] = 0;
		one = entry_of('f', path, "", 1);
		CHECK(!image_listing_add(listing, &one, (uint32_t)i + 1, &err));
	}
	CHECK(!image_listing_finish(listing, records, &err));
	reader = image_listing_open(fd, &err);
	while (reader && image_listing_next(reader, &entry, &err) > 0) {
		CHECK(entry->path_length == 4095 && entry->path[0] == 'a' + count % 26 && entry->path[4094] == entry->path[0]);
		count++;
	}
	CHECK(count == 600);
	image_listing_close(reader);
	image_listing_free(listing);
	image_records_free(records);
	close(fd);
}

int main(void)
{
	test_what_was_written_is_read();
	test_what_is_not_whole_is_refused();
	test_a_layer_that_no_listing_can_tell_leaves_it_empty();
	test_one_longer_than_the_buffer();
	return check_result("listing");
}
