/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the SHA-256 of files: the examples of FIPS 180-2, a large file, and one that cannot be read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "native/tree_check/digest.h"

enum { MOST = 1 << 30 };

static void test_known(struct volume_digest *digest)
{
	static const struct { const char *text, *hex; } known[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	};
	char hex[65];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		uint64_t bytes = 1000;
		int fd = memfd_create("text", 0);
		CHECK(fd >= 0 && write(fd, known[i].text, strlen(known[i].text)) >= 0 && !lseek(fd, 0, SEEK_SET));
		CHECK(!volume_digest_file(digest, fd, MOST, hex, &bytes));
		CHECK(!strcmp(hex, known[i].hex) && bytes == 1000 + strlen(known[i].text));
		close(fd);
	}
}

static void test_a_million(struct volume_digest *digest)
{
	static char text[1000000];
	char hex[65];
	uint64_t bytes = 0;
	int fd = memfd_create("million", 0);

	memset(text, 'a', sizeof(text));
	CHECK(write(fd, text, sizeof(text)) == (ssize_t)sizeof(text) && !lseek(fd, 0, SEEK_SET));
	CHECK(!volume_digest_file(digest, fd, MOST, hex, &bytes) && bytes == sizeof(text));
	CHECK(!strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"));
	CHECK(!lseek(fd, 0, SEEK_SET) && !volume_digest_file(digest, fd, sizeof(text), hex, &bytes));
	CHECK(!lseek(fd, 0, SEEK_SET) && volume_digest_file(digest, fd, sizeof(text) - 1, hex, &bytes) == EFBIG);
	close(fd);
}

int main(void)
{
	struct volume_error err = { .number = 0 };
	struct volume_digest *digest = volume_digest_new(&err);
	char hex[65];
	uint64_t bytes = 0;
	int folder = open("/", O_RDONLY | O_DIRECTORY);

	CHECK(digest != NULL);
	if (!digest)
		return check_result(err.message);
	test_known(digest);
	test_a_million(digest);
	CHECK(volume_digest_file(digest, folder, MOST, hex, &bytes) == EISDIR && !bytes);
	CHECK(volume_digest_file(digest, -1, MOST, hex, &bytes) == EBADF);
	test_known(digest);
	volume_digest_free(digest);
	volume_digest_free(NULL);
	close(folder);
	return check_result("digest");
}
