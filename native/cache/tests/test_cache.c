/* SPDX-License-Identifier: Apache-2.0 */
/* Tests parts of the image cache: keys, records, sizes, digests of files, and locks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "native/settings/number.h"
#include "native/cache/content_digest.h"
#include "native/cache/lock.h"
#include "native/cache/record.h"
#include "native/cache/trim.h"

#define DIGEST "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static const char *const options[] = { "format 1", "-comp zstd", NULL };

static void check_keys(void)
{
	static const char *const joined[] = { "format 1\n-comp zstd", NULL }, *const fewer[] = { "format 1", NULL };
	const struct cache_request request = { "docker://x", DIGEST, "linux/amd64", options, true };
	struct cache_request other = request;
	struct jail_error err;
	char key[65], second[65];

	CHECK(!record_key(&request, key, &err) && strlen(key) == 64);
	other.reference = "docker://y";
	CHECK(!record_key(&other, second, &err) && !strcmp(key, second));
	other.platform = "linux/arm64";
	CHECK(!record_key(&other, second, &err) && strcmp(key, second));
	other = request;
	other.options = fewer;
	CHECK(!record_key(&other, second, &err) && strcmp(key, second));
	other.options = joined;
	CHECK(record_key(&other, second, &err) == -1);
	other = request;
	other.digest = "sha256:../../etc/passwd";
	CHECK(record_key(&other, second, &err) == -1);
	other.digest = DIGEST "0";
	CHECK(record_key(&other, second, &err) == -1);
	CHECK(!record_is_digest("sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"));
}

static void check_records(void)
{
	scoped_record record = { .reference = text_format("docker://é\tx"), .digest = text_format(DIGEST),
				 .platform = text_format("linux/amd64"), .size = 1ULL << 40,
				 .changed = { 1700000000, 7 }, .made = 1700000001 };
	struct jail_error err;

	memset(record.key, 'a', 64);
	memset(record.content, 'b', 64);
	text_list_add(&record.options, options[1]);
	scoped_free char *text = record_format(&record);
	scoped_record got = { 0 };
	CHECK(!record_parse(&got, text, &err));
	CHECK(got.size == record.size && got.changed.tv_sec == 1700000000 && got.changed.tv_nsec == 7);
	CHECK(got.reference && !strcmp(got.reference, record.reference));
	CHECK(got.options.n == 1 && !strcmp(got.options.items[0], options[1]));
	CHECK(!strcmp(got.key, record.key) && !strcmp(got.content, record.content));
	/* Cut anywhere, it is none; the last newline is no part of it. */
	for (size_t length = strlen(text) - 2; length; length--) {
		scoped_free char *cut = text_copy(text, length);
		scoped_record part = { 0 };
		CHECK(record_parse(&part, cut, &err) == -1);
	}
	static const char *const bad[] = { "size x\n", "size 1x\n", "changed 1\n", "key abc\n", "made \n" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		scoped_free char *longer = text_format("%s%s", text, bad[i]);
		scoped_record part = { 0 };
		CHECK(record_parse(&part, longer, &err) == -1);
		CHECK(err.line > 2);
	}
}

static void check_sizes(void)
{
	static const struct { const char *text; long long size; } sizes[] = {
		{ "0", 0 }, { "1024", 1024 }, { "3K", 3072 }, { "2m", 2 << 20 }, { "1GiB", 1 << 30 }, { "1TB", 1LL << 40 },
		{ "", -1 }, { "-1", -1 }, { "G", -1 }, { "1X", -1 }, { "1GG", -1 }, { "9999999999P", -1 }, { " 1", -1 },
		{ "99999999999999999999", -1 },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		CHECK(number_size(sizes[i].text) == sizes[i].size);
}

/* The same digest on any number of threads, another for another byte, of sizes at the edges of chunks. */
static void check_content(void)
{
	static const size_t sizes[] = { 0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (16 << 20) + 5, 40 << 20 };
	scoped_fd fd = memfd_create("content", MFD_CLOEXEC);
	struct jail_error err;
	char one[65], four[65], other[65];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CHECK(!ftruncate(fd, (off_t)sizes[i]));
		CHECK(!content_digest(fd, sizes[i], 1, one, &err));
		CHECK(!content_digest(fd, sizes[i], 4, four, &err) && !strcmp(one, four));
		if (!sizes[i])
			continue;
		CHECK(pwrite(fd, "x", 1, (off_t)sizes[i] - 1) == 1);
		CHECK(!content_digest(fd, sizes[i], 2, other, &err) && strcmp(one, other));
		CHECK(pwrite(fd, "", 1, (off_t)sizes[i] - 1) == 1);
	}
	CHECK(content_digest(fd, sizes[6] + 1, 4, one, &err) == -1);
	CHECK_HAS(err.message, "shorter");
	CHECK(!ftruncate(fd, 0) && !content_sha256(fd, 1 << 20, one, &err) && !strcmp(one, DIGEST + 7));
}

static void check_locks(void)
{
	char folder[] = "/tmp/cellblock-test-XXXXXX";
	struct lock_progress progress;

	CHECK(mkdtemp(folder) != NULL);
	scoped_fd dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int first = lock_file(dir, "lock", false);
	CHECK(first >= 0);
	CHECK(lock_file(dir, "lock", false) == -1 && errno == EAGAIN);
	lock_tell(first, 5, 10);
	CHECK(lock_ask(dir, "lock", &progress) && progress.done == 5 && progress.total == 10 && progress.pid == getpid());
	lock_file_done(dir, "lock", &first);
	CHECK(!lock_ask(dir, "lock", &progress));
	/* Who dies holds nothing any more. */
	pid_t pid = fork();
	if (!pid)
		_exit(lock_file(dir, "lock", false) < 0);
	int status = 1;
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	first = lock_file(dir, "lock", false);
	CHECK(first >= 0);
	scoped_fd reader = openat(dir, "lock", O_RDONLY | O_CLOEXEC);
	CHECK(lock_is_held(reader) && lock_take(reader, LOCK_SHARED) == -1);
	CHECK(!lock_take(first, LOCK_SHARED) && !lock_take(reader, LOCK_SHARED));
	CHECK(lock_is_held(reader) && lock_take(first, LOCK_EXCLUSIVE) == -1);
	jail_close(&reader);
	CHECK(!lock_take(first, LOCK_EXCLUSIVE));
	lock_file_done(dir, "lock", &first);
	CHECK(!rmdir(folder));
}

/* Made when nobody looks: between the sweep of locks that each command begins with, and the lock that it takes. */
static void check_links(void)
{
	static const char text[] = "a file that is no lock of any cache, and longer than what a lock's file has in it: its first bytes were "
				   "lost, and with them what its owner had written there";
	char folder[] = "/tmp/cellblock-test-XXXXXX", got[sizeof(text)] = "";
	struct lock_progress progress;

	CHECK(mkdtemp(folder) != NULL);
	scoped_fd dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scoped_fd file = openat(dir, "diary", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	CHECK(write(file, text, sizeof(text)) == (ssize_t)sizeof(text) && !linkat(dir, "diary", dir, "lock", 0));
	for (int for_all = 0; for_all < 2; for_all++) {
		int lock = lock_file(dir, "lock", for_all);
		CHECK(lock >= 0);
		lock_tell(lock, 5, 10);
		CHECK(lock_ask(dir, "lock", &progress) && progress.done == 5);
		CHECK(pread(file, got, sizeof(got), 0) == (ssize_t)sizeof(got) && !memcmp(got, text, sizeof(text)));
		lock_file_done(dir, "lock", &lock);
		CHECK(!linkat(dir, "diary", dir, "lock", 0));
	}
	CHECK(!unlinkat(dir, "lock", 0) && !unlinkat(dir, "diary", 0) && !rmdir(folder));
}

int main(void)
{
	check_links();
	check_keys();
	check_records();
	check_sizes();
	check_content();
	check_locks();
	return check_result("cache");
}
