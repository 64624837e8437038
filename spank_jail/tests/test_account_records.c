/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which of the jail's accounts are written for a node, and how. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "spank_jail/node/account_fields.h"
#include "spank_jail/node/account_limits.h"
#include "spank_jail/node/account_records.h"
#include "native/testing/check.h"

#define OWN_PASSWD "root:x:0:0:root:/root:/bin/bash\nslurm:x:30000:30000::/:/bin/false\n"
#define OWN_GROUP "root:x:0:\nshadow:x:42:\nusers:x:100:\nslurm:x:30000:\n"
#define GOOD_GROUP "ann:x:1000:\n"
#define GOOD_SHADOW "ann:*:1::::::\n"

static struct accounts_text copy[ACCOUNTS_N_FILES];
static struct accounts_refused refused[ACCOUNTS_N_FILES];
static struct jail_error err;

static struct accounts_text text_of(const char *string, size_t size)
{
	struct accounts_text text = { malloc(size + 1), size };

	memcpy(text.bytes, string, size);
	return text;
}

static void clear(void)
{
	for (int i = 0; i < ACCOUNTS_N_FILES; i++)
		free(copy[i].bytes);
	memset(copy, 0, sizeof(copy));
}

static int check_sized(const char *passwd, size_t size, const char *group, const char *shadow)
{
	struct accounts_text jail[] = { text_of(passwd, size), text_of(group, strlen(group)),
					text_of(shadow, strlen(shadow)) };
	struct accounts_text own[] = { text_of(OWN_PASSWD, strlen(OWN_PASSWD)), text_of(OWN_GROUP, strlen(OWN_GROUP)) };

	clear();
	int result = accounts_check(jail, own, copy, refused, &err);
	for (int i = 0; i < ACCOUNTS_N_FILES; i++)
		free(jail[i].bytes);
	free(own[0].bytes);
	free(own[1].bytes);
	return result;
}

static int check(const char *passwd, const char *group, const char *shadow)
{
	return check_sized(passwd, strlen(passwd), group, shadow);
}

/* Is `passwd` left out, and for a reason with `part` in it? "" means without a word. */
static void check_refused(const char *passwd, const char *part)
{
	CHECK(!check(passwd, GOOD_GROUP, GOOD_SHADOW));
	CHECK(copy[ACCOUNTS_PASSWD].size == 0 && copy[ACCOUNTS_SHADOW].size == 0);
	CHECK(!!*part == !!refused[ACCOUNTS_PASSWD].n);
	if (refused[ACCOUNTS_PASSWD].n)
		CHECK_HAS(refused[ACCOUNTS_PASSWD].reason, part);
}

static void check_passwd(const char *passwd, const char *expected)
{
	CHECK(!check(passwd, GOOD_GROUP, GOOD_SHADOW));
	CHECK(copy[ACCOUNTS_PASSWD].bytes && !strcmp(copy[ACCOUNTS_PASSWD].bytes, expected));
}

static void users(void)
{
	check_passwd("root:x:0:0:root:/root:/bin/bash\nann:secret:1000:1000:Ann \xc2\x9b\x20x:/home/ann:/bin/zsh\n",
		     "ann:x:1000:1000::/home/ann:/bin/zsh\n");
	CHECK(!refused[ACCOUNTS_PASSWD].n);
	check_passwd("ann::1000:100::/home/ann:\n", "ann:x:1000:100::/home/ann:/bin/sh\n");
	check_passwd("# a comment\n\nann:x:01000:1000::/:/bin/sh\n", "ann:x:1000:1000::/:/bin/sh\n");
	check_passwd("4.x@site-1$:x:2147483647:65536::/..a/b..:/bin/sh\n",
		     "4.x@site-1$:x:2147483647:65536::/..a/b..:/bin/sh\n");
	/* Of several the first counts, whatever it is. */
	check_passwd("ann:x:1000:1000::/1:/bin/sh\nann:x:1001:1000::/2:/bin/sh\nbob:x:1000:1000::/3:/bin/sh\n",
		     "ann:x:1000:1000::/1:/bin/sh\n");
	CHECK(refused[ACCOUNTS_PASSWD].n == 2 && refused[ACCOUNTS_PASSWD].line == 2);
	check_passwd("ann:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\n", "");
}

static void refused_users(void)
{
	static const char *const silent[] = {
		"root:x:0:0::/root:/bin/sh\n", "toor:x:0:1000::/root:/bin/sh\n", "munge:x:65520:65520::/:/bin/false\n",
		"nobody:x:65534:65534::/:/bin/false\n", "x:x:65535:1000::/:/bin/sh\n", "x:x:999:1000::/:/bin/sh\n",
		"x:x:2147483648:1000::/:/bin/sh\n", "x:x:4294967295:1000::/:/bin/sh\n", "+::1:1:::\n",
		"slurm:x:30000:30000::/:/bin/false\n",
	};
	static const struct { const char *passwd, *part; } spoken[] = {
		{ "slurm:x:1001:1001::/:/bin/sh\n", "name is one of the node's own" },
		{ "root:x:1001:1001::/:/bin/sh\n", "name is one of the node's own" },
		{ "fred:x:30000:1001::/:/bin/sh\n", "id is one of the node's own" },
		{ "ann:x:1000:0::/:/bin/sh\n", "primary group" },
		{ "ann:x:1000:42::/:/bin/sh\n", "primary group" },
		{ "ann:x:1000:::/:/bin/sh\n", "primary group" },
		{ "ann:x:1000:1000::home:/bin/sh\n", "home" },
		{ "ann:x:1000:1000:::/bin/sh\n", "home" },
		{ "ann:x:1000:1000::/home/../../..:/bin/sh\n", "home" },
		{ "ann:x:1000:1000::/home//..:/bin/sh\n", "home" },
		{ "ann:x:1000:1000::/:sh\n", "shell" },
		{ "ann:x:1000:1000::/:/jail/../sh\n", "shell" },
		{ "ann:x:1e3:1000::/:/bin/sh\n", "number" },
		{ "ann:x:-1:1000::/:/bin/sh\n", "number" },
		{ "ann:x:4294968296:1000::/:/bin/sh\n", "number" },
		{ "ann:x::1000::/:/bin/sh\n", "number" },
		{ "ann:x:1000:1000::/\n", "fields" },
		{ "ann:x:1000:1000::/:/bin/sh:\n", "fields" },
		{ "1000:x:1000:1000::/:/bin/sh\n", "name" },
		{ "-ann:x:1000:1000::/:/bin/sh\n", "name" },
		{ ".ann:x:1000:1000::/:/bin/sh\n", "name" },
		{ "an/n:x:1000:1000::/:/bin/sh\n", "name" },
		{ "an n:x:1000:1000::/:/bin/sh\n", "name" },
		{ ":x:1000:1000::/:/bin/sh\n", "name" },
		{ "a\xc3\xa4:x:1000:1000::/:/bin/sh\n", "name" },
		{ "ann:x:1000:1000:\x1b[31m:/:/bin/sh\n", "control" },
		{ "ann:x:1000:1000::/:/bin/sh\r\n", "control" },
	};

	for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++)
		check_refused(silent[i], "");
	for (size_t i = 0; i < sizeof(spoken) / sizeof(spoken[0]); i++)
		check_refused(spoken[i].passwd, spoken[i].part);
}

static void long_lines(void)
{
	static char line[ACCOUNTS_LINE_MAX + 64], name[ACCOUNTS_NAME_MAX + 64];

	snprintf(line, sizeof(line), "ann:x:1000:1000::/%0*d:/bin/sh\n", (int)ACCOUNTS_LINE_MAX, 0);
	check_refused(line, "too long");
	snprintf(name, sizeof(name), "a%0*d:x:1000:1000::/:/bin/sh\n", (int)ACCOUNTS_NAME_MAX, 0);
	check_refused(name, "name");
}

static void groups(void)
{
	CHECK(!check("ann:x:1000:1000::/:/bin/sh\n",
		     "root:x:0:ann\nshadow:x:42:ann\nsudo:x:27:ann\nshadow:x:1042:ann\nours:x:30000:ann\n"
		     "lab:secret:2000:ann,root,,bob,slurm,b d,-x\nlab:x:2001:ann\nnone:x:2000:\nempty:x:2002:\n",
		     GOOD_SHADOW));
	CHECK(!strcmp(copy[ACCOUNTS_GROUP].bytes, "lab:x:2000:ann,bob\nempty:x:2002:\n"));
	CHECK(refused[ACCOUNTS_GROUP].n == 4 && refused[ACCOUNTS_GROUP].line == 4);
}

static void shadow(void)
{
	CHECK(!check("ann:x:1000:1000::/:/bin/sh\nbob:x:1001:1001::/:/bin/sh\ncat:x:1002:1002::/:/bin/sh\n"
		     "dan:x:1003:1003::/:/bin/sh\n", GOOD_GROUP,
		     "root:$y$hash:19000:0:99999:7:::\nann:$y$hash:19000:0:99999:7::0:\nbob:!$y$hash:19000::::-1::\n"
		     "cat::1:2:3:4:5:6x:\ncat:*:1:2:3:4:5:6:\ndan:*:1:2:3:4:5\n"));
	CHECK(!strcmp(copy[ACCOUNTS_SHADOW].bytes, "ann:*:19000:0:99999:7::0:\nbob:!:19000::::-1::\n"));
	/* A repeated one, one of wrong ages, one of too few fields. */
	CHECK(refused[ACCOUNTS_SHADOW].n == 3);
}

static void whole(void)
{
	static const char with_nul[] = "ann:x:1000:1000:\0:/:/bin/sh\n";

	CHECK(check("", GOOD_GROUP, GOOD_SHADOW) == -1);
	CHECK_HAS(err.message, "passwd is not whole");
	CHECK(check("ann:x:1000:1000::/:/bin/sh", GOOD_GROUP, GOOD_SHADOW) == -1);
	CHECK_HAS(err.message, "does not end with a newline");
	CHECK(check("ann:x:1000:1000::/:/bin/sh\n", GOOD_GROUP, "") == -1);
	CHECK_HAS(err.message, "shadow is not whole");
	CHECK(!check_sized(with_nul, sizeof(with_nul) - 1, GOOD_GROUP, GOOD_SHADOW));
	CHECK(copy[ACCOUNTS_PASSWD].size == 0);
	CHECK_HAS(refused[ACCOUNTS_PASSWD].reason, "control");
}

static void group_of_a_name(void)
{
	struct accounts_text text = text_of(OWN_GROUP, strlen(OWN_GROUP));

	CHECK(accounts_gid_of(&text, "shadow") == 42);
	free(text.bytes);
	text = text_of("shadow:x:x:\n", 12);
	CHECK(accounts_gid_of(&text, "shadow") == -1);
	free(text.bytes);
}

int main(void)
{
	users();
	refused_users();
	long_lines();
	groups();
	shadow();
	whole();
	group_of_a_name();
	clear();
	return check_result("account_records");
}
