/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the comparison of a tree with its manifest: for one file of each kind, the report when one
 * thing about it differs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "native/tree_check/check.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static int root;
static char base[] = "/tmp/volume-check-XXXXXX";

static void make_file(const char *name, const char *content)
{
	int fd = openat(root, name, O_WRONLY | O_CREAT, 0644);

	CHECK(fd >= 0 && write(fd, content, strlen(content)) == (ssize_t)strlen(content) && !fchmod(fd, 0644));
	close(fd);
}

static void set_time(const char *name)
{
	const struct timespec times[2] = { { 5, 7 }, { 5, 7 } };

	CHECK(!utimensat(root, name, times, AT_SYMLINK_NOFOLLOW));
}

static void make_tree(void)
{
	CHECK(mkdtemp(base) != NULL);
	root = open(base, O_RDONLY | O_DIRECTORY);
	CHECK(root >= 0 && !mkdirat(root, "dir", 0755));
	make_file("dir/abc", "abc");
	make_file("dir/other", "abc");
	make_file("empty", "");
	CHECK(!symlinkat("dir/abc", root, "link") && !symlinkat("..", root, "up") && !symlinkat("dir", root, "way"));
	CHECK(!mkfifoat(root, "fifo", 0600) && !linkat(root, "dir/abc", root, "hard", 0));
	for (const char *const *name = (const char *const[]){ "dir/abc", "dir/other", "empty", "link", "fifo", NULL };
	     *name; name++)
		set_time(*name);
}

/* Bits of the one line `text`, with this process's owner in place of "@". */
static unsigned bits(const char *text, bool content)
{
	struct volume_finding finding = { .bits = 0 };
	struct volume_error err = { .number = 0 };
	char line[600];
	const char *at = strchr(text, '@');

	if (at)
		snprintf(line, sizeof(line), "%.*s%u %u%s\n", (int)(at - text), text, getuid(), getgid(), at + 1);
	else
		snprintf(line, sizeof(line), "%s\n", text);
	struct volume_check check = { .root = root, .text = line, .length = strlen(line), .threads = 1, .content = content,
				      .findings = &finding, .capacity = 1 };
	if (volume_check(&check, &err)) {
		fprintf(stderr, "%s: %s\n", text, err.message);
		return ~0u;
	}
	CHECK(check.n_findings <= 1);
	return check.n_findings ? finding.bits : 0;
}

static void test_each_difference(void)
{
	CHECK(bits("f 644 @ 3 5000000007 " ABC " - dir/abc", true) == 0);
	CHECK(bits("f 644 @ 3 5000000007 " EMPTY " - dir/abc", true) == VOLUME_CONTENT);
	CHECK(bits("f 644 @ 3 5000000007 " EMPTY " - dir/abc", false) == 0);
	CHECK(bits("f 644 @ 3 5000000007 abc - dir/abc", true) == VOLUME_CONTENT);
	CHECK(bits("f 600 @ 3 5000000007 " ABC " - dir/abc", true) == VOLUME_MODE);
	CHECK(bits("f 644 @ 3 5000000008 " ABC " - dir/abc", true) == VOLUME_TIME);
	CHECK(bits("f 644 @ 4 5000000007 " ABC " - dir/abc", true) == VOLUME_SIZE);
	CHECK(bits("f 644 77 78 3 5000000007 " ABC " - dir/abc", true) == VOLUME_OWNER);
	CHECK(bits("f 644 77 78 4 1 " ABC " - dir/abc", true) == (VOLUME_OWNER | VOLUME_SIZE | VOLUME_TIME));
	CHECK(bits("d 755 @ 0 1 - - dir/abc", true) == VOLUME_KIND);
	CHECK(bits("f 644 @ 0 1 " EMPTY " - gone", true) == VOLUME_MISSING);
	CHECK(bits("f 644 @ 0 1 " EMPTY " - gone/x", true) == VOLUME_MISSING);
	CHECK(bits("f 644 @ 0 1 " EMPTY " - empty/x", true) == VOLUME_MISSING);
	CHECK(bits("l 777 @ 7 5000000007 dir/abc - link", true) == 0);
	CHECK(bits("l 777 @ 7 5000000007 dir/ab - link", true) == VOLUME_TARGET);
	CHECK(bits("h 644 @ 3 5000000007 dir/abc - hard", true) == 0);
	CHECK(bits("h 644 @ 3 5000000007 dir/other - hard", true) == VOLUME_LINK);
	CHECK(bits("h 644 @ 3 5000000007 gone - hard", true) == VOLUME_LINK);
	CHECK(bits("p 600 @ 0 5000000007 - - fifo", true) == 0);
	CHECK(bits("d 755 @ 0 1 - - dir", true) == 0);
	CHECK(bits("f 644 @ 3 5000000007 " ABC " user.x=eA== dir/abc", true) == VOLUME_ATTRIBUTES);
}

/* A user put a symbolic link where a directory was: what is behind it is not the volume's. */
static void test_no_link_is_followed(void)
{
	CHECK(bits("f 644 @ 3 5000000007 " ABC " - way/abc", true) == VOLUME_MISSING);
	CHECK(bits("d 755 @ 0 1 - - up/etc", true) == VOLUME_MISSING);
	CHECK(bits("h 644 @ 3 5000000007 way/abc - hard", true) == VOLUME_LINK);
	CHECK(bits("f 777 @ 7 5000000007 " ABC " - link", true) == VOLUME_KIND);
	/* A fifo in place of a file is not opened: nobody would ever write to it. */
	CHECK(bits("f 600 @ 0 5000000007 " EMPTY " - fifo", true) == VOLUME_KIND);
}

/* Many lines by many threads: every line is looked at once. */
static void test_threads(void)
{
	enum { LINES = 5000 };
	static struct volume_finding findings[LINES];
	struct volume_error err = { .number = 0 };
	char *text = NULL;
	size_t length = 0, seen = 0;
	FILE *out = open_memstream(&text, &length);

	for (int i = 0; i < LINES; i++)
		fprintf(out, i % 2 ? "f 644 %u %u 3 5000000007 " ABC " - dir/abc\n" : "f 644 %u %u 1 1 " ABC " - gone%d\n",
			getuid(), getgid(), i);
	fclose(out);
	for (unsigned threads = 1; threads <= 16; threads *= 4) {
		struct volume_check check = { .root = root, .text = text, .length = length, .threads = threads,
					      .content = true, .findings = findings, .capacity = LINES };
		CHECK(!volume_check(&check, &err));
		CHECK(check.n_findings == LINES / 2 && check.bytes == LINES / 2 * 3);
		for (size_t i = 0; i < check.n_findings; i++)
			seen += findings[i].bits == VOLUME_MISSING && (!findings[i].offset || text[findings[i].offset - 1] == '\n');
	}
	CHECK(seen == 3 * LINES / 2);
	free(text);
}

static void test_errors(void)
{
	struct volume_finding finding;
	struct volume_error err = { .number = 0 };
	const char *text = "f 644 0 0 1 1 " ABC " - gone\nf 644 0 0 1 1 " ABC " - gone too\n";
	struct volume_check check = { .root = root, .text = text, .length = strlen(text), .threads = 2,
				      .findings = &finding, .capacity = 1 };

	CHECK(volume_check(&check, &err) == -1);
	CHECK_HAS(err.message, "no line of a manifest");
	check.text = "f 644 0 0 1 1 " ABC " - a\nf 644 0 0 1 1 " ABC " - b\n";
	check.length = strlen(check.text);
	CHECK(volume_check(&check, &err) == -1);
	CHECK_HAS(err.message, "more findings than room");
	check.text = "";
	check.length = 0;
	CHECK(!volume_check(&check, &err) && !check.n_findings);
}

int main(void)
{
	char command[64];

	umask(022);
	make_tree();
	test_each_difference();
	test_no_link_is_followed();
	test_threads();
	test_errors();
	snprintf(command, sizeof(command), "rm -rf %s", base);
	CHECK(!system(command));
	return check_result("check");
}
