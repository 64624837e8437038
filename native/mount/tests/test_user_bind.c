/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a bind mount asked for by a user gives him nothing that he could not reach, whatever he prepared on both
 * sides. Runs as root only, because it mounts and takes other users' ids. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/sys.h"
#include "native/mount/user_bind.h"
#include "native/testing/check.h"

#define GROUP 4321

static char directory[] = "/tmp/test_user_bind.XXXXXX", allowed[64], source[128];
static const gid_t groups[] = { GROUP };
static const struct jail_user ann = { 1234, 1234, groups, 1 }, other = { 1235, 1235, NULL, 0 }, root_user = { 0, 0, NULL, 0 };
static struct jail_entry entry = { .type = JAIL_RBIND, .attributes = MOUNT_ATTR_NODEV };
static struct jail_error err;
static int tree;

static bool takes(const char *path, const struct jail_user *user)
{
	snprintf(source, sizeof(source), "%s%s", allowed, path);
	entry.source = source;
	entry.beneath = allowed;
	entry.user = user;
	memset(&err, 0, sizeof(err));
	int fd = jail_user_bind_source(&entry, &err);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void test_sources(void)
{
	CHECK(takes("", &ann) && takes("/open", &ann) && takes("/inside", &ann) && takes("/file", &ann));
	CHECK(!takes("/out", &ann) && err.number == EXDEV);
	CHECK_HAS(err.message, "leads out of what bind-allow= allows");
	CHECK(!takes("/absolute", &root_user) && !takes("/climb", &root_user));
	CHECK(!takes("/missing", &ann) && err.number == ENOENT);
	CHECK(takes("/closed", &other)); /* shown, and still closed */
	CHECK(!takes("/closed/open", &other) && err.number == EACCES);
	CHECK_HAS(err.message, "you may not reach");
	CHECK(takes("/closed/open", &ann) && takes("/closed/open", &root_user)); /* by his group */
}

static void test_identity_is_given_back(void)
{
	gid_t own[8];
	int before = getgroups(8, own);

	/* open, look, three identities of which one can fail, clone, attributes, groups again. */
	for (unsigned nth = 1; nth <= 6; nth++) {
		sys_fault_set(nth, EIO);
		bool taken = takes("/closed/open", &ann);
		bool reached = sys_fault_count() >= nth;
		sys_fault_set(0, 0);
		CHECK(taken == !reached);
		CHECK(sys_thread_setfsuid((uid_t)-1) == 0 && sys_thread_setfsgid((gid_t)-1) == getgid());
		if (nth != 3) /* the one that gives them back */
			CHECK(getgroups(8, own) == before);
		CHECK(!setgroups(0, NULL) && (before = 0) == 0);
	}
}

static bool lands(const char *path, const struct jail_user *user)
{
	char target[64];

	snprintf(target, sizeof(target), "%s", path);
	entry.target = target;
	entry.user = user;
	memset(&err, 0, sizeof(err));
	int fd = jail_user_bind_target(tree, &entry, &err);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void test_targets(void)
{
	CHECK(lands("/home/ann", &ann) && lands("/mnt/x", &ann) && lands("/etc", &root_user));
	CHECK(!lands("/etc", &ann));
	CHECK_HAS(err.message, "belongs to uid 0");
	CHECK(!lands("/mntx", &ann));
	CHECK(!lands("/home/ann/to-etc", &ann) && !lands("/home/ann/to-etc/sub", &ann) && !lands("/home/ann/to-etc", &root_user));
	CHECK_HAS(err.message, "symlink; write the real path");
	CHECK(!lands("/mnt/missing", &ann) && err.number == ENOENT);
	CHECK_HAS(err.message, "does not exist in the jail");
}

static const char prepare[] =
	"cd %s && mkdir -m 755 allowed allowed/open allowed/closed/ allowed/closed/open outside jail jail/home jail/home/ann "
	"jail/mnt jail/mnt/x jail/mntx jail/etc jail/etc/sub && chmod 755 . && touch allowed/file && "
	"chown 0:4321 allowed/closed && chmod 750 allowed/closed && chown 1234 jail/home/ann && "
	"ln -s ../outside allowed/out && ln -s /etc allowed/absolute && ln -s open/../../outside allowed/climb && "
	"ln -s open allowed/inside && ln -s /etc jail/home/ann/to-etc";

int main(void)
{
	char command[1024], jail[64];

	if (geteuid())
		return check_result("user_bind");
	if (!mkdtemp(directory) || unshare(CLONE_NEWNS))
		return 1;
	snprintf(allowed, sizeof(allowed), "%s/allowed", directory);
	snprintf(jail, sizeof(jail), "%s/jail", directory);
	snprintf(command, sizeof(command), prepare, directory);
	CHECK(!system(command));
	tree = open(jail, O_PATH | O_DIRECTORY | O_CLOEXEC);
	CHECK(jail_path_within("/a/b", "/a") && jail_path_within("/a", "/a") && !jail_path_within("/ab", "/a"));
	CHECK(jail_path_within("/a/b", "/a/") && jail_path_within("/a", "/") && !jail_path_within("/ab", "/a/"));
	CHECK(jail_path_plain("/a/b") && !jail_path_plain("/") && !jail_path_plain("/a/") && !jail_path_plain("a"));
	CHECK(jail_path_plain("/a/..b") && jail_path_plain("/.a") && !jail_path_plain("/a/.."));
	test_sources();
	test_identity_is_given_back();
	test_targets();
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	return system(command) || check_result("user_bind");
}
