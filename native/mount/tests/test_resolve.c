/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that paths in a tree full of hostile links never lead out of it. Needs no privileges. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/resolve.h"
#include "native/base/sys.h"
#include "native/testing/check.h"

static struct jail_error err;
static int root;

/* Whether `path` resolves to the same file as `expected` does without any tricks. */
static bool leads_to(const char *path, const char *expected)
{
	struct stat a, b;
	int fd = jail_resolve(root, path, 0, &err);
	bool same = fd >= 0 && !fstat(fd, &a) && !fstatat(root, expected, &b, AT_SYMLINK_NOFOLLOW) &&
		    a.st_ino == b.st_ino && a.st_dev == b.st_dev;

	if (fd >= 0)
		close(fd);
	return same;
}

static int create(const char *path, enum jail_create kind)
{
	memset(&err, 0, sizeof(err));
	return jail_resolve_create(root, path, kind, &err);
}

static void test_links_stay_inside(void)
{
	sys_mkdirat(root, "etc", 0755);
	sys_mkdirat(root, "a", 0755);
	sys_symlinkat("/etc", root, "absolute");
	sys_symlinkat("../../../../etc", root, "a/climbing");
	sys_symlinkat("/a/loop", root, "a/loop");
	CHECK(leads_to("/absolute", "etc"));
	CHECK(leads_to("/a/climbing", "etc"));
	CHECK(leads_to("/../../../../../etc", "etc"));
	CHECK(leads_to("etc", "etc"));
	CHECK(jail_resolve(root, "/a/loop", 0, &err) == -1 && err.number == ELOOP);
	CHECK_HAS(err.message, "too many symlinks");
	CHECK(jail_resolve(root, "/nothing", 0, &err) == -1 && err.number == ENOENT);
	CHECK_HAS(err.target, "/nothing");
}

static void test_creating(void)
{
	struct stat st;
	mode_t old = umask(0);
	int fd = create("/new/deep/er", JAIL_CREATE_DIR);

	CHECK(fd >= 0 && !fstat(fd, &st) && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0755);
	CHECK(!fstatat(root, "new/deep/er", &st, 0));
	close(fd);
	fd = create("/new/file//", JAIL_CREATE_FILE);
	CHECK(fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0644);
	close(fd);
	fd = create("/new/file", JAIL_CREATE_FILE); /* again: left alone */
	CHECK(fd >= 0);
	close(fd);
	fd = create("/new/file//", JAIL_CREATE_FILE); /* as the first step wrote it */
	CHECK(fd >= 0);
	close(fd);
	CHECK(create("", JAIL_CREATE_DIR) == -1 && err.number == ENOENT && err.message[0]);
	umask(old);
}

static void test_creating_through_links(void)
{
	struct stat st;
	int fd;

	sys_symlinkat("/../../../../etc", root, "link");
	fd = create("/link/made", JAIL_CREATE_DIR);
	CHECK(fd >= 0 && !fstatat(root, "etc/made", &st, 0));
	close(fd);
	sys_symlinkat("/not/there", root, "dangling");
	CHECK(create("/dangling", JAIL_CREATE_DIR) == -1);
	CHECK_HAS(err.message, "symlink to nothing");
	CHECK(create("/dangling/x", JAIL_CREATE_DIR) == -1);
	CHECK(create("/new/file/x", JAIL_CREATE_DIR) == -1 && err.number == ENOTDIR);
	CHECK(create("/missing/x", JAIL_CREATE_NONE) == -1 && err.number == ENOENT);
}

static void test_every_call_may_fail(void)
{
	/* Five calls at most: look, and for each of two components look, open the parent, make, look. */
	for (unsigned nth = 1; nth <= 9; nth++) {
		sys_fault_set(nth, EIO);
		int fd = create("/faulty/dir", JAIL_CREATE_DIR);
		unsigned calls = sys_fault_count();
		sys_fault_set(0, 0);
		CHECK(calls < nth ? fd >= 0 : (fd == -1 && err.number == EIO && err.syscall[0]));
		if (fd >= 0)
			close(fd);
		unlinkat(root, "faulty/dir", AT_REMOVEDIR);
		unlinkat(root, "faulty", AT_REMOVEDIR);
	}
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

int main(void)
{
	char directory[] = "/tmp/test_resolve.XXXXXX", command[80];

	if (!mkdtemp(directory))
		return 1;
	root = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int before = open_descriptors();
	test_links_stay_inside();
	test_creating();
	test_creating_through_links();
	test_every_call_may_fail();
	CHECK(open_descriptors() == before);
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command) || check_result("resolve");
}
