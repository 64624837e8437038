/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parser of manifest lines: those that cellblock/jail/tree/manifest.py writes, and wrong
 * ones close to them. */
#include <string.h>

#include "native/testing/check.h"
#include "native/tree_check/line.h"

static struct volume_line line;

static bool parse(const char *text)
{
	return volume_line_parse(text, strlen(text), &line);
}

static void test_kinds(void)
{
	CHECK(parse("d 755 0 0 0 1700000000000000000 - - ."));
	CHECK(line.kind == 'd' && line.mode == 0755 && !line.path[0] && !line.has_attributes);
	CHECK(line.time == 1700000000000000000);
	CHECK(parse("f 4755 1 4294967295 18446744073709551615 -5 ab user.x=eA== usr/bin/passwd"));
	CHECK(line.mode == 04755 && line.uid == 1 && line.gid == UINT32_MAX && line.size == UINT64_MAX);
	CHECK(line.time == -5 && line.content_length == 2 && line.has_attributes);
	CHECK(!strcmp(line.path, "usr/bin/passwd") && !line.target[0]);
	CHECK(parse("l 777 0 0 7 1 usr%20%25bin - bin"));
	CHECK(!strcmp(line.target, "usr %bin") && !strcmp(line.path, "bin"));
	CHECK(parse("h 755 0 0 9 1 usr/bin/perl - a%0Ab%7f"));
	CHECK(!strcmp(line.target, "usr/bin/perl") && !strcmp(line.path, "a\nb\x7f"));
	CHECK(parse("c 666 0 0 0 1 1:3 - dev/null"));
	CHECK(line.content_length == 3 && !memcmp(line.content, "1:3", 3));
	/* Not an escape: that is how a name with a per cent sign in an old manifest reads. */
	CHECK(parse("f 644 0 0 0 1 ab - 100%2") && !strcmp(line.path, "100%2"));
	CHECK(parse("f 644 0 0 0 1 ab - %zz%") && !strcmp(line.path, "%zz%"));
}

static void test_what_is_none(void)
{
	static const char *const wrong[] = {
		"",
		"d",
		"d 755 0 0 0 1 - -",
		"d 755 0 0 0 1 - - . more",
		"x 755 0 0 0 1 - - a",
		"dd 755 0 0 0 1 - - a",
		"d 855 0 0 0 1 - - a",
		"d 17777 0 0 0 1 - - a",
		"d 755 4294967296 0 0 1 - - a",
		"d 755 0 4294967296 0 1 - - a",
		"d 755 -1 0 0 1 - - a",
		"f 644 0 0 18446744073709551616 1 ab - a",
		"f 644 0 0 0 9223372036854775808 ab - a",
		"f 644 0 0 0 - ab - a",
		"f 644 0 0 0 --1 ab - a",
		"f 644 0 0  1 ab - a",
		"f 644 0 0 0 1 ab - a%00b",
		"l 777 0 0 0 1 a%00 - a",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(!parse(wrong[i]));
		if (parse(wrong[i]))
			fprintf(stderr, "taken: %s\n", wrong[i]);
	}
}

/* What a manifest never names: it would be looked up outside the tree, or not where it says. */
static void test_paths_that_lead_elsewhere(void)
{
	static const char *const wrong[] = { "..", "a/..", "../a", "a/../b", "/", "/a", "a/", "a//b", "./a", "a/.", "a/./b" };
	char text[128];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "f 644 0 0 0 1 ab - %s", wrong[i]);
		CHECK(!parse(text));
		snprintf(text, sizeof(text), "h 644 0 0 0 1 %s - a", wrong[i]);
		CHECK(!parse(text));
		/* The text of a symbolic link may be anything: nobody follows it. */
		snprintf(text, sizeof(text), "l 777 0 0 0 1 %s - a", wrong[i]);
		CHECK(parse(text) && !strcmp(line.target, wrong[i]));
	}
	CHECK(parse("f 644 0 0 0 1 ab - ...") && parse("f 644 0 0 0 1 ab - .a/..b/c.."));
}

static void test_long_paths(void)
{
	char text[3 * PATH_MAX];
	size_t start = (size_t)snprintf(text, sizeof(text), "f 644 0 0 0 1 ab - ");

	for (size_t i = 0; i + 1 < PATH_MAX; i++)
		text[start + i] = i % 200 == 199 ? '/' : 'a';
	CHECK(volume_line_parse(text, start + PATH_MAX - 1, &line) && strlen(line.path) == PATH_MAX - 1);
	text[start + PATH_MAX - 1] = 'a';
	CHECK(!volume_line_parse(text, start + PATH_MAX, &line));
}

int main(void)
{
	test_kinds();
	test_what_is_none();
	test_paths_that_lead_elsewhere();
	test_long_paths();
	return check_result("line");
}
