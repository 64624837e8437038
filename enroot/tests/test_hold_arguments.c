/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which directory an image's /etc/rc changes to, found without running it. */
#define _GNU_SOURCE
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "enroot/container/hold_container.h"

static void check_directory(const char *rc, const char *directory)
{
	scoped_free char *found = hold_directory(rc);

	CHECK(directory ? found && !strcmp(found, directory) : !found);
}

int main(void)
{
	struct hold hold = { 0 };

	check_directory("#!/bin/sh\n# cd /no\nmkdir -p \"/work\" 2> /dev/null\ncd \"/work\" && unset OLDPWD || exit 1\n", "/work");
	check_directory("mkdir -p '/a b'; cd '/a b' || exit 1\n", "/a b");
	check_directory("mkdir -p /w && cd /w\n", "/w");
	check_directory("mkdir -p -- '/w' 2> /dev/null\nCDPATH= cd -- '/w' || exit 1\n", "/w");
	check_directory("cd -- '/it'\\''s'\n", "/it's");
	check_directory("cd \"/q\\\"\\$x\"\n", "/q\"$x");
	check_directory("cd \"${WORKDIR:-/}\"\n", NULL);
	check_directory("cd relative\n", NULL);
	check_directory("cd \"/open\n", NULL);
	check_directory("abcd /x\nexec \"$@\"\n", NULL);
	check_directory("", NULL);
	CHECK(hold_parse("1,2", &hold) && hold_parse("", &hold) && hold_parse("9", &hold) && hold_parse("9,x", &hold) &&
	      hold_parse("70000,9", &hold));
	return check_result("hold_arguments");
}
