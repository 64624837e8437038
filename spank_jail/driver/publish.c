/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the directory of a node's GPU driver in a hidden place, and exchanges it with the one in use in one step.
 * jail_driver.c calls it.
 *
 *   DIRECTORY.lock       one run at a time. Beside the directory, because the first run mounts over that
 *   DIRECTORY/           a small file system in memory, of this node
 *     7/, 8/             generations: each a file system of its own, read-only
 *     current -> 8       replaced by rename(2)
 *
 * A generation is filled in a mount namespace of this process alone, where even SIGKILL leaves nothing, and then
 * attached here in one step. Jobs have a clone of it: what is unmounted here stays theirs until they end, for the
 * kernel drops a file system with its last mount. The generation before the last stays, for who has just read
 * `current`.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/text.h"
#include "native/base/trust.h"
#include "driver.h"

/* A collection takes milliseconds; who waits longer waits for a file system that does not answer. */
#define LOCK_WAIT_S 30

static int make_directories(const char *path, struct jail_error *err)
{
	char part[PATH_MAX];

	snprintf(part, sizeof(part), "%s", path);
	for (char *slash = strchr(part + 1, '/'); ; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = '\0';
		if (mkdir(part, 0755) && errno != EEXIST) {
			jail_fail(err, "mkdir", errno, "cannot make \"%s\" for the driver's directory; is there room, may it be "
				  "written?", part);
			return jail_error_at(err, NULL, 0, path);
		}
		if (!slash)
			return 0;
		*slash = '/';
	}
}

/* The top of a mount? Not by st_dev: /run is a file system in memory, too. */
static bool is_mount(const char *path)
{
	struct statx status;

	return !statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, 0, &status) &&
	       (status.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* Shared, so that a namespace that was copied from this one before (sshd's) sees later generations, too. */
static int open_directory(const char *path, struct jail_error *err)
{
	static const struct jail_parameter parameters[] = { { "size", "1m" }, { "mode", "0755" } };

	if (!is_mount(path)) {
		scoped_fd mount = jail_filesystem_new("tmpfs", parameters, 2, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
		if (mount < 0)
			return -1;
		if (sys_move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH)) {
			jail_fail(err, "move_mount", errno, "cannot mount a file system in memory for the driver's directory");
			return jail_error_at(err, NULL, 0, path);
		}
	}
	if (sys_mount_setattr(AT_FDCWD, path, 0, 0, JAIL_MS_SHARED)) {
		jail_fail(err, "mount_setattr", errno, "cannot share the driver's directory with later namespaces");
		return jail_error_at(err, NULL, 0, path);
	}
	scoped_fd checked = jail_open_trusted(path, 1, "driver's directory", err);
	if (checked < 0)
		return -1;
	int fd = openat(checked, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 ? fd : jail_fail(err, "open", errno, "cannot open \"%s\"", path);
}

static int take_lock(const char *path, struct jail_error *err)
{
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	size_t length = strlen(path);
	while (length > 1 && path[length - 1] == '/')
		length--;
	scoped_free char *beside = text_format("%.*s.lock", (int)length, path);
	scoped_fd lock = beside ? open(beside, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;

	if (lock < 0) {
		jail_fail(err, "open", errno, "cannot make the lock of the driver's directory");
		return jail_error_at(err, NULL, 0, beside ? beside : path);
	}
	for (time_t end = time(NULL) + LOCK_WAIT_S; flock(lock, LOCK_EX | LOCK_NB);) {
		if (errno != EWOULDBLOCK || time(NULL) >= end) {
			jail_fail(err, "flock", errno, "another jail-driver has been at it for %d seconds: see what it waits for "
				  "(cat /proc/PID/stack), end it, and run this again", LOCK_WAIT_S);
			return jail_error_at(err, NULL, 0, path);
		}
		nanosleep(&pause, NULL);
	}
	return jail_keep(&lock);
}

/* The number that `current` leads to; 0: none. */
static unsigned current_of(int directory)
{
	char content[32] = "";
	unsigned number = 0;
	ssize_t length = readlinkat(directory, "current", content, sizeof(content) - 1);

	return length > 0 && sscanf(content, "%u", &number) == 1 ? number : 0;
}

static bool is_generation(const char *name, unsigned *number)
{
	return *name && strspn(name, "0123456789") == strlen(name) && strlen(name) < 10 &&
	       sscanf(name, "%u", number) == 1;
}

/* Unmounts what neither of the two is. Jobs that have it keep it. Best effort: the next one tries again. */
static void retire(int directory, const char *path, unsigned current, unsigned previous)
{
	char generation[PATH_MAX + 16];
	struct dirent *entry;
	unsigned number;
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);

	while (names && (entry = readdir(names))) {
		if (!is_generation(entry->d_name, &number) || number == current || number == previous)
			continue;
		snprintf(generation, sizeof(generation), "%s/%s", path, entry->d_name);
		sys_umount2(generation, JAIL_MNT_DETACH);
		unlinkat(directory, entry->d_name, AT_REMOVEDIR);
	}
	if (names)
		closedir(names);
	else
		jail_close(&fd);
}

static unsigned highest(int directory)
{
	struct dirent *entry;
	unsigned number, found = 0;
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *names = fd < 0 ? NULL : fdopendir(fd);

	while (names && (entry = readdir(names)))
		if (is_generation(entry->d_name, &number) && number > found)
			found = number;
	if (names)
		closedir(names);
	else
		jail_close(&fd);
	return found;
}

/* Is the current generation made of this, and whole? */
static bool is_current(int directory, const struct driver_set *set, const char *contents)
{
	size_t length = strlen(contents);
	scoped_free char *found = malloc(length + 1);
	scoped_fd generation = openat(directory, "current", O_PATH | O_DIRECTORY | O_CLOEXEC);
	scoped_fd fd = generation < 0 ? -1 : openat(generation, ".contents", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat is, wanted;
	char path[DRIVER_NAME_SIZE + 8];

	if (!found || fd < 0 || read(fd, found, length + 1) != (ssize_t)length || memcmp(found, contents, length))
		return false;
	for (size_t i = 0; i < set->n_files; i++) {
		snprintf(path, sizeof(path), "%s/%s", set->files[i].program ? "bin" : "lib64", set->files[i].name);
		if (fstatat(generation, path, &is, AT_SYMLINK_NOFOLLOW) || stat(set->files[i].source, &wanted) ||
		    is.st_dev != wanted.st_dev || is.st_ino != wanted.st_ino)
			return false;
	}
	return true;
}

/* In a mount namespace of this process alone: a generation, filled, as a detached tree. */
static int build(const struct driver_set *set, const struct driver_request *request, const char *where,
		 const char *contents, struct jail_error *err)
{
	/* Stubs of a page and a half each, links, and the specification. */
	static const struct jail_parameter parameters[] = { { "size", "8m" }, { "mode", "0755" } };
	scoped_fd mount = jail_filesystem_new("tmpfs", parameters, 2, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);

	if (mount < 0)
		return -1;
	if (sys_move_mount(mount, "", AT_FDCWD, request->directory, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot mount a file system in memory for the driver's files");
	if (driver_fill(set, request, mount, where, contents, err))
		return -1;
	if (sys_mount_setattr(mount, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot make the driver's directory read-only");
	int tree = sys_open_tree(mount, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH);
	return tree >= 0 ? tree : jail_fail(err, "open_tree", errno, "cannot take the driver's directory along");
}

static int build_aside(const struct driver_set *set, const struct driver_request *request, const char *where,
		       const char *contents, struct jail_error *err)
{
	scoped_fd home = sys_open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	scoped_fd folder = sys_open(".", O_PATH | O_DIRECTORY);

	if (home < 0)
		return jail_fail(err, "open", errno, "/proc/self/ns/mnt cannot be opened; is /proc mounted?");
	if (sys_unshare(CLONE_NEWNS))
		return jail_fail(err, "unshare", errno, "a mount namespace is needed to make the driver's directory in: "
				 "CAP_SYS_ADMIN");
	if (sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, 0, JAIL_MS_PRIVATE))
		return jail_fail(err, "mount_setattr", errno, "cannot make the mount namespace private");
	scoped_fd tree = build(set, request, where, contents, err);
	/* Back even after a failure: the caller still has a lock to give back, and words to say. */
	if (sys_setns(home, CLONE_NEWNS)) {
		if (tree >= 0)
			jail_fail(err, "setns", errno, "cannot come back from the mount namespace");
		return -1;
	}
	/* setns(2) went to its root; where the caller was matters to nobody but relative paths. */
	if (folder >= 0)
		(void)sys_fchdir(folder);
	return tree < 0 ? -1 : jail_keep(&tree);
}

static int switch_to(int directory, unsigned number, struct jail_error *err)
{
	char content[16];

	snprintf(content, sizeof(content), "%u", number);
	unlinkat(directory, "next", 0);
	if (sys_symlinkat(content, directory, "next"))
		return jail_fail(err, "symlinkat", errno, "cannot make the link to the new driver's directory");
	if (renameat(directory, "next", directory, "current"))
		return jail_fail(err, "renameat", errno, "cannot replace the link to the driver's directory");
	return 0;
}

static int attach(int tree, const char *where, struct jail_error *err)
{
	if (sys_move_mount(tree, "", AT_FDCWD, where, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot attach the driver's directory at \"%s\"", where);
	/* Nothing that happens to it here later is to happen in jobs. */
	if (sys_mount_setattr(AT_FDCWD, where, AT_RECURSIVE, 0, JAIL_MS_PRIVATE))
		return jail_fail(err, "mount_setattr", errno, "cannot make \"%s\" private", where);
	return 0;
}

static int make_generation(const struct driver_set *set, const struct driver_request *request, int directory,
			   unsigned number, const char *contents, struct jail_error *err)
{
	char where[PATH_MAX];

	if (snprintf(where, sizeof(where), "%s/%u", request->directory, number) >= (int)sizeof(where))
		return jail_fail(err, NULL, ENAMETOOLONG, "the path of the driver's directory is too long");
	if (mkdir(where, 0755)) {
		jail_fail(err, "mkdir", errno, "cannot make the new driver's directory; is the file system in memory full?");
		return jail_error_at(err, NULL, 0, where);
	}
	scoped_fd tree = build_aside(set, request, where, contents, err);
	if (tree >= 0 && !attach(tree, where, err)) {
		if (!switch_to(directory, number, err))
			return 0;
		jail_error_at(err, NULL, 0, where);
	}
	sys_umount2(where, JAIL_MNT_DETACH);
	rmdir(where);
	return -1;
}

enum driver_result driver_publish(const struct driver_set *set, const struct driver_request *request,
				  struct jail_error *err)
{
	scoped_free char *contents = driver_contents(set, err);

	if (!contents || make_directories(request->directory, err))
		return DRIVER_FAILED;
	scoped_fd lock = take_lock(request->directory, err);
	scoped_fd directory = lock < 0 ? -1 : open_directory(request->directory, err);
	if (directory < 0)
		return DRIVER_FAILED;
	const unsigned before = current_of(directory);
	if (is_current(directory, set, contents)) {
		retire(directory, request->directory, before, before);
		return DRIVER_UNCHANGED;
	}
	unsigned number = highest(directory) + 1;
	if (make_generation(set, request, directory, number, contents, err))
		return DRIVER_FAILED;
	retire(directory, request->directory, number, before);
	return DRIVER_MADE;
}
