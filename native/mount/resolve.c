/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and creates paths inside the jail's root so that no symbolic link leads out of it. Files of this folder,
 * enroot/, other libraries in native/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "resolve.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"

/* openat2 says EAGAIN when something in the tree is renamed while it walks "..": a user can cause it,
 * but not for ever without losing the race once. */
#define RETRIES 64

static int resolve_once(int root, const char *path, uint64_t flags)
{
	for (int i = 0; i < RETRIES; i++) {
		int fd = sys_openat2(root, path, O_PATH | flags, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
		if (fd >= 0 || errno != EAGAIN)
			return fd;
	}
	return -1;
}

static void fail_to_open(int number, struct jail_error *err)
{
	const char *place = jail_place;

	switch (number) {
	case ENOENT:
		jail_fail(err, "openat2", number, "it does not exist %s; create it there, or add x-create=dir or x-create=file",
			  place);
		break;
	case ENOTDIR:
		jail_fail(err, "openat2", number, "a component of it is no directory %s", place);
		break;
	case ELOOP:
		jail_fail(err, "openat2", number, "it goes through too many symlinks, or through a link of /proc");
		break;
	case ENOSYS:
		jail_fail(err, "openat2", number, "this kernel has no openat2; Linux 5.12 or newer is needed");
		break;
	case EAGAIN:
		jail_fail(err, "openat2", number, "the tree changes under it faster than it can be followed");
		break;
	case ESTALE:
		jail_fail(err, "openat2", number, "the jail volume's file handle is stale; mount the volume again on this node");
		break;
	default:
		jail_fail(err, "openat2", number, "cannot open it %s", place);
	}
}

static int refuse(const char *path, int number, struct jail_error *err)
{
	fail_to_open(number, err);
	err->inside = number != ESTALE && number != EIO;
	return jail_error_at(err, NULL, 0, path);
}

int jail_resolve(int root, const char *path, uint64_t flags, struct jail_error *err)
{
	int fd = resolve_once(root, path, flags);

	return fd < 0 ? refuse(path, errno, err) : fd;
}

/* Makes one entry in the directory `parent`. One that is there already is no error: another step may
 * have made it a moment ago. */
static int create_one(int parent, const char *name, bool directory)
{
	int made = directory ? sys_mkdirat(parent, name, 0755) : sys_mknodat(parent, name, S_IFREG | 0644, 0);

	return made && errno != EEXIST ? -1 : 0;
}

/* Opens path[0..length) or creates its last component in the parent that was opened before it. */
static int step_into(int root, char *prefix, const char *name, bool directory, struct jail_error *err)
{
	int fd = resolve_once(root, prefix, 0);

	if (fd >= 0 || errno != ENOENT)
		return fd >= 0 ? fd : refuse(prefix, errno, err);
	/* The parent is resolved again rather than remembered: a symlink may have led there. */
	char *slash = strrchr(prefix, '/');
	*slash = '\0';
	scoped_fd parent = jail_resolve(root, *prefix ? prefix : "/", O_DIRECTORY, err);
	*slash = '/';
	if (parent < 0)
		return -1;
	if (create_one(parent, name, directory)) {
		jail_fail(err, directory ? "mkdirat" : "mknodat", errno,
			  "cannot create it %s; is the volume writable and not full?", jail_place);
		err->inside = true;
		return jail_error_at(err, NULL, 0, prefix);
	}
	fd = resolve_once(root, prefix, 0);
	if (fd < 0) {
		int number = errno;
		if (number == ENOENT)
			jail_fail(err, "openat2", number, "it is a symlink to nothing; remove the link or make what it points to");
		else
			fail_to_open(number, err);
		err->inside = true;
		return jail_error_at(err, NULL, 0, prefix);
	}
	return fd;
}

/* Opens what is there already. Slashes at the end mean nothing: it would be made without them, and the
 * next step must find what this one makes. */
static int look(int root, const char *path)
{
	char bare[PATH_MAX];
	size_t length = strlen(path);

	while (length > 1 && path[length - 1] == '/')
		length--;
	if (!path[length] || length >= sizeof(bare))
		return resolve_once(root, path, 0);
	memcpy(bare, path, length);
	bare[length] = '\0';
	return resolve_once(root, bare, 0);
}

int jail_resolve_create(int root, const char *path, enum jail_create create, struct jail_error *err)
{
	char prefix[PATH_MAX] = "";
	size_t used = 0;
	int fd = -1;

	if (create == JAIL_CREATE_NONE)
		return jail_resolve(root, path, 0, err);
	/* The usual case costs one call: it exists. */
	fd = look(root, path);
	if (fd >= 0)
		return fd;
	/* "" and "/" have no component that could be made. */
	if (errno != ENOENT || !path[strspn(path, "/")])
		return refuse(path, errno, err);
	for (const char *part = path + strspn(path, "/"); *part; part += strspn(part, "/")) {
		size_t length = strcspn(part, "/");
		if (used + length + 2 > sizeof(prefix)) {
			jail_close(&fd);
			jail_fail(err, "openat2", ENAMETOOLONG, "the path is too long");
			return jail_error_at(err, NULL, 0, path);
		}
		prefix[used] = '/';
		memcpy(prefix + used + 1, part, length);
		prefix[used + 1 + length] = '\0';
		const char *name = prefix + used + 1;
		used += length + 1;
		part += length;
		bool last = part[strspn(part, "/")] == '\0';
		jail_close(&fd);
		fd = step_into(root, prefix, name, !last || create == JAIL_CREATE_DIR, err);
		if (fd < 0)
			return jail_error_at(err, NULL, 0, path);
	}
	return fd;
}
