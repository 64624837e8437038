/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the directories that settings of enroot name, and refuses those that other users could replace, as in /tmp.
 * enroot, the cache and pyxis call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "settings.h"

/* What kernels show of users that a user namespace does not have: of the node's root, in a container without it. */
#define OVERFLOW_UID 65534

static int fail(const char *key, const char *path, const char *call, int number, const char *message, struct jail_error *err)
{
	jail_fail(err, call, number, "%s %s; set %s to one that you may write, in the environment or in enroot.conf", message, key, key);
	return jail_error_at(err, NULL, 0, path);
}

static bool is_ours(const struct stat *st)
{
	return st->st_uid == geteuid() || !st->st_uid || st->st_uid == OVERFLOW_UID;
}

static bool is_everybodys(const struct stat *st)
{
	return S_ISDIR(st->st_mode) && (st->st_mode & S_IWOTH);
}

/* Each part of the path. In a directory that all may write, whoever made an entry, or a link in its place, may exchange it at any
 * moment, and a container's files with it: then it must be one's own, or root's, and the directory such that others cannot rename it.
 * What is checked stays so: nobody else can change it. */
static int check_parts(const char *key, const char *whole, struct jail_error *err)
{
	scoped_free char *path = text_copy(whole, strlen(whole));
	struct stat above, st;

	if (lstat("/", &above))
		return fail(key, "/", "stat", errno, "cannot look at the directory of", err);
	for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = '\0';
		if (lstat(path, &st))
			return fail(key, path, "stat", errno, "cannot look at the directory of", err);
		if (is_everybodys(&above) && (!(above.st_mode & S_ISVTX) || !is_ours(&above)))
			return fail(key, path, NULL, EPERM, "everybody can put another in the place of this part of", err);
		if (is_everybodys(&above) && !is_ours(&st))
			return fail(key, path, NULL, EPERM, "another user made, and can exchange, this part of", err);
		if (!slash)
			return 0;
		/* Of a link, where it leads is looked at by its own path. */
		if (stat(path, &above))
			return fail(key, path, "stat", errno, "cannot look at the directory of", err);
		*slash = '/';
	}
}

static int check(const char *key, const char *path, struct jail_error *err)
{
	scoped_free char *real = realpath(path, NULL);
	struct stat st;

	if (!real || stat(real, &st))
		return fail(key, path, "realpath", errno, "cannot look at the directory of", err);
	if (check_parts(key, path, err) || check_parts(key, real, err))
		return -1;
	if (!is_ours(&st))
		return fail(key, path, NULL, EPERM, "another user owns the directory of", err);
	/* A place to mount on is as good where all may write. */
	if (is_everybodys(&st) && strcmp(key, "ENROOT_RUNTIME_PATH"))
		return fail(key, path, NULL, EPERM, "everybody can write into the directory of", err);
	return 0;
}

static int make(const char *key, char *path, struct jail_error *err)
{
	for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		if (slash)
			*slash = '\0';
		int number = mkdir(path, 0700) ? errno : 0;
		/* What is there cannot always be made: EROFS, EACCES. */
		if (number && number != EEXIST && access(path, F_OK))
			return fail(key, path, "mkdir", number, "cannot make the directory of", err);
		if (!slash)
			return 0;
		*slash = '/';
	}
}

int settings_directory(const struct settings *settings, const char *key, struct jail_error *err)
{
	scoped_free char *path = text_copy(settings_get(settings, key), strlen(settings_get(settings, key)));

	if (path[0] != '/')
		return jail_fail(err, NULL, 0, "%s is \"%s\"; it must be an absolute path", key, path);
	if (access(path, F_OK) && make(key, path, err))
		return -1;
	return check(key, path, err);
}
