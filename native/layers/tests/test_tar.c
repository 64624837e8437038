/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the tar reader: numbers, names, maps of sparse files, and what it refuses. tests/jail compares whole archives
 * with GNU tar and Python. */
#include "native/layers/tar_header.h"
#include "native/testing/check.h"
#include "memory_tar.h"

static struct image_error err;

/* Appends a member to `out`; gives the length afterwards. */
static size_t member(unsigned char *out, size_t at, char type, const char *name, const char *link,
		     const void *data, size_t size)
{
	struct tar_header header;
	unsigned sum = 0;

	memset(&header, 0, sizeof(header));
	snprintf(header.name, sizeof(header.name), "%s", name);
	snprintf(header.link, sizeof(header.link), "%s", link);
	snprintf(header.mode, 8, "%07o", 0644);
	snprintf(header.uid, 8, "%07o", 0);
	snprintf(header.gid, 8, "%07o", 0);
	snprintf(header.size, 12, "%011o", (unsigned)size & 0777777);
	snprintf(header.mtime, 12, "%011o", 0);
	header.type = type;
	memcpy(header.magic, "ustar\0" "00", 8);
	memset(header.checksum, ' ', 8);
	for (size_t i = 0; i < sizeof(header); i++)
		sum += ((unsigned char *)&header)[i];
	snprintf(header.checksum, 8, "%06o", sum);
	memcpy(out + at, &header, sizeof(header));
	if (size)
		memcpy(out + at + 512, data, size);
	return at + 512 + ((size + 511) & ~(size_t)511);
}

/* Reads all; gives the entries as text, or NULL when it is refused. */
static char *read_all(const unsigned char *data, size_t length)
{
	struct memory memory;
	struct image_input input = { memory_next, &memory };
	const struct image_entry *entry;
	struct image_slice slice;
	char *text = NULL;
	size_t size;
	FILE *stream = open_memstream(&text, &size);
	int got;

	memset(&err, 0, sizeof(err));
	memory_open(&memory, data, length, 512);
	struct image_tar *tar = image_tar_new(&input, &err);

	while ((got = image_tar_next(tar, &entry, &err)) > 0) {
		fprintf(stream, "%c %s", entry->kind, entry->path);
		if (entry->target_length)
			fprintf(stream, "->%s", entry->target);
		while ((got = image_tar_data(tar, &slice, &err)) > 0)
			fprintf(stream, " %llu:%.*s", (unsigned long long)slice.offset, (int)slice.length, slice.data);
		fprintf(stream, " %llu %lld\n", (unsigned long long)entry->size, (long long)entry->mtime_ns);
	}
	fclose(stream);
	image_tar_free(tar);
	image_pool_destroy(&memory.pool);
	if (got < 0) {
		CHECK(err.message[0]);
		free(text);
		return NULL;
	}
	return text;
}

static unsigned char archive[64 * 512];

#define READS(length, expected)                                        \
	do {                                                           \
		char *text_read = read_all(archive, length);           \
		CHECK(text_read && !strcmp(text_read, expected));      \
		if (text_read && strcmp(text_read, expected))          \
			fprintf(stderr, "read: %s\n", text_read);      \
		free(text_read);                                       \
	} while (0)

#define REFUSES(length, part)                      \
	do {                                       \
		char *text_read = read_all(archive, length); \
		CHECK(!text_read);                 \
		CHECK_HAS(err.message, part);      \
		free(text_read);                   \
	} while (0)

static size_t pax(size_t at, char type, const char *records)
{
	return member(archive, at, type, "pax", "", records, strlen(records));
}

static void test_members(void)
{
	memset(archive, 0, sizeof(archive));
	size_t at = member(archive, 0, '5', "./d/", "", "", 0);
	at = member(archive, at, '0', "d//./f", "", "hello", 5);
	at = member(archive, at, '2', "/abs", "../x", "", 0);
	at = member(archive, at, '1', "hard", "./d/f", "", 0);
	READS(at + 1024, "d d 0 0\nf d/f 0:hello 5 0\nl abs->../x 4 0\nh hard->d/f 0 0\n");
	REFUSES(at, "cut off");
	REFUSES(700, "cut off");
	archive[100] ^= 1;
	REFUSES(at + 1024, "checksum is wrong");
}

static void test_pax(void)
{
	memset(archive, 0, sizeof(archive));
	size_t at = pax(0, 'g', "20 mtime=1.00000005\n18 path=global-name\n");
	at = member(archive, at, '0', "a", "", "", 0);
	REFUSES(at + 1024, "a record's length is wrong");
	memset(archive, 0, sizeof(archive));
	at = pax(0, 'g', "20 mtime=1.00000005\n");
	at = member(archive, at, '0', "a", "", "", 0);
	at = pax(at, 'x', "12 path=b/c\n12 mtime=-1\n"); /* the second overrides */
	at = member(archive, at, '0', "x", "", "", 0);
	at = pax(at, 'x', "9 mtime=\n");
	at = member(archive, at, '0', "c", "", "", 0);
	READS(at + 1024, "f a 0 1000000050\nf b/c 0 -1000000000\nf c 0 0\n");
	memset(archive, 0, sizeof(archive));
	at = pax(0, 'x', "30 SCHILY.acl.access=user::rw\n\n");
	at = member(archive, at, '0', "a", "", "", 0);
	REFUSES(at + 1024, "stored as text");
}

static void test_hostile_names(void)
{
	static const char *const names[] = { "..", "../x", "a/../../x", "a/.." };

	for (size_t i = 0; i < 4; i++) {
		memset(archive, 0, sizeof(archive));
		size_t at = member(archive, 0, '0', names[i], "", "", 0);
		REFUSES(at + 1024, "leaves the archive's root");
		memset(archive, 0, sizeof(archive));
		at = member(archive, 0, '1', "a", names[i], "", 0);
		REFUSES(at + 1024, "leaves the archive's root");
	}
	memset(archive, 0, sizeof(archive));
	size_t at = member(archive, 0, 'Z', "a", "", "", 0);
	REFUSES(at + 1024, "type that is not known");
}

static void test_sparse(void)
{
	memset(archive, 0, sizeof(archive));
	size_t at = pax(0, 'x', "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n28 GNU.sparse.realsize=1000\n"
				"21 GNU.sparse.name=s\n");
	char body[517] = "1\n500\n5\n";
	memcpy(body + 512, "islan", 5);
	at = member(archive, at, '0', "dir/GNUSparseFile.0/s", "", body, 517);
	READS(at + 1024, "f s 500:islan 1000 0\n");
	body[2] = '9';
	body[3] = '9';
	body[4] = '9';
	member(archive, at - 1024 - 512, '0', "dir/GNUSparseFile.0/s", "", body, 517);
	REFUSES(at + 1024, "does not fit its size");
	memset(archive, 0, sizeof(archive));
	at = pax(0, 'x', "23 GNU.sparse.size=1000\n25 GNU.sparse.map=1,2,8,3\n");
	at = member(archive, at, '0', "s", "", "abcde", 5);
	REFUSES(at + 1024, "length is wrong");
	memset(archive, 0, sizeof(archive));
	at = pax(0, 'x', "24 GNU.sparse.size=1000\n26 GNU.sparse.map=1,2,8,3\n");
	at = member(archive, at, '0', "s", "", "abcde", 5);
	READS(at + 1024, "f s 1:ab 8:cde 1000 0\n");
}

static void test_numbers(void)
{
	int64_t value;

	CHECK(!tar_number("0000644\0", 8, &value) && value == 0644);
	CHECK(!tar_number(" 644 \0\0\0", 8, &value) && value == 0644);
	CHECK(!tar_number("\0\0\0\0\0\0\0\0", 8, &value) && value == 0);
	CHECK(!tar_number("\x80\0\0\0\0\0\1\0", 8, &value) && value == 256);
	CHECK(!tar_number("\xff\xff\xff\xff\xff\xff\xff\xff", 8, &value) && value == -1);
	CHECK(tar_number("64x\0\0\0\0\0", 8, &value) == -1);
	CHECK(tar_number("\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, &value) == -1);
}

int main(void)
{
	test_numbers();
	test_members();
	test_pax();
	test_hostile_names();
	test_sparse();
	return check_result("tar");
}
