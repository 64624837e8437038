/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a file or directory only if root alone can write it and all directories above it. enroot/, other libraries in
 * native/, pyxis/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "trust.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "scoped.h"
#include "sys.h"

static int check(const struct stat *st, const char *path, int is_parent, const char *what, struct jail_error *err)
{
	const char *role = is_parent ? ", which lies above it," : "";

	if (st->st_uid != 0)
		jail_fail(err, NULL, 0, "the %s must belong to root, but \"%s\"%s belongs to uid %u; chown root it",
			  what, path, role, (unsigned)st->st_uid);
	else if ((st->st_mode & (S_IWGRP | S_IWOTH)) && !(is_parent && (st->st_mode & S_ISVTX)))
		jail_fail(err, NULL, 0, "the %s must be writable by root alone, but \"%s\"%s has mode %04o; "
			  "chmod go-w it", what, path, role, (unsigned)st->st_mode & 07777);
	else
		return 0;
	return -1;
}

static int check_parents(char *path, const char *what, struct jail_error *err)
{
	struct stat st;

	for (char *slash = path; slash; slash = strchr(slash + 1, '/')) {
		char kept = slash[1];
		/* "/" itself first, then each prefix up to the parent. */
		if (slash == path)
			path[1] = '\0';
		else
			*slash = '\0';
		int failed = sys_lstat(path, &st) ? jail_fail(err, "lstat", errno, "cannot look at \"%s\"", path)
					      : check(&st, path, 1, what, err);
		if (slash == path)
			path[1] = kept;
		else
			*slash = '/';
		if (failed)
			return -1;
	}
	return 0;
}

int jail_open_trusted(const char *path, int directory, const char *what, struct jail_error *err)
{
	char real[PATH_MAX];
	struct stat st;

	if (path[0] != '/') {
		jail_fail(err, NULL, 0, "the %s must be an absolute path", what);
		return jail_error_at(err, NULL, 0, path);
	}
	if (sys_realpath(path, real)) {
		int number = errno;
		jail_fail(err, "realpath", number, number == ESTALE
			  ? "the %s is on a stale file handle; mount its volume again on this node"
			  : "the %s cannot be reached on this node; is its volume mounted?", what);
		return jail_error_at(err, NULL, 0, path);
	}
	if (check_parents(real, what, err))
		return jail_error_at(err, NULL, 0, path);
	scoped_fd fd = sys_open(real, (directory ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK) | O_NOFOLLOW);
	if (fd < 0 || sys_fstat(fd, &st)) {
		jail_fail(err, fd < 0 ? "open" : "fstat", errno, "cannot open the %s", what);
		return jail_error_at(err, NULL, 0, path);
	}
	if (check(&st, real, 0, what, err)) {
		err->inside = directory;
		return jail_error_at(err, NULL, 0, path);
	}
	return jail_keep(&fd);
}
