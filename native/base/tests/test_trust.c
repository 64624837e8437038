/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which files and directories count as writable by root alone. The cases with files of other owners
 * run as root only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/sys.h"
#include "native/base/trust.h"
#include "native/testing/check.h"

static struct jail_error err;
static char path[64];

static int opens(const char *name, int directory)
{
	snprintf(path + strlen("/tmp/test_trust.XXXXXX"), 20, "%s", name);
	int fd = jail_open_trusted(path, directory, "thing", &err);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void test_owners_and_modes(void)
{
	CHECK(opens("/d", 1) && opens("/d/f", 0));
	CHECK(!opens("/d/f", 1));
	CHECK(!chmod(path, 0664) && !opens("/d/f", 0));
	CHECK_HAS(err.message, "has mode 0664");
	CHECK(!chmod(path, 0644) && !chown(path, 12345, 0) && !opens("/d/f", 0));
	CHECK_HAS(err.message, "belongs to uid 12345");
	CHECK(!chown(path, 0, 0) && opens("/d", 1) && !chmod(path, 0777) && !opens("/d", 1) && !opens("/d/f", 0));
	CHECK_HAS(err.message, "which lies above it");
	opens("/d", 1);
	CHECK(!chmod(path, 01777) && opens("/d/f", 0)); /* sticky above is fine, */
	CHECK(!opens("/d", 1));                        /* but not the thing itself */
	CHECK(!chmod(path, 0755) && opens("/link", 0));
}

/* /usr/bin is root's everywhere. */
static void test_every_call_may_fail(void)
{
	unsigned calls, nth = 0;

	do {
		memset(&err, 0, sizeof(err));
		sys_fault_set(++nth, EIO);
		int fd = jail_open_trusted("/usr/bin", 1, "thing", &err);
		calls = sys_fault_count();
		CHECK(calls < nth ? fd >= 0 : fd == -1 && err.number == EIO && !strcmp(err.syscall, sys_fault_name()));
		if (fd >= 0)
			close(fd);
	} while (calls >= nth);
	CHECK(calls >= 5); /* realpath, / and /usr, open, fstat */
	sys_fault_set(0, 0);
}

int main(void)
{
	char directory[] = "/tmp/test_trust.XXXXXX", command[160];

	if (!mkdtemp(directory))
		return 1;
	strcpy(path, directory);
	CHECK(jail_open_trusted("relative", 0, "thing", &err) == -1);
	CHECK_HAS(err.message, "absolute path");
	CHECK(!opens("/missing", 0) && err.number == ENOENT);
	CHECK_HAS(err.target, "/missing");
	test_every_call_may_fail();
	if (geteuid() == 0) {
		snprintf(command, sizeof(command), "cd %s && mkdir d && touch d/f && chmod -R go-w d && ln -s d/f link",
			 directory);
		CHECK(system(command) == 0);
		test_owners_and_modes();
	}
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command) || check_result("trust");
}
