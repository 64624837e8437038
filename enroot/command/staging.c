/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and deletes container roots under hidden names, so that a killed command leaves no half root under a
 * container's name. Files of this folder and enroot/ call it. */
#define _GNU_SOURCE
#include "staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/container/staging_name.h"

/* Each level holds a descriptor while a tree is removed, and a user may have 64 of them. */
#define LEVELS_MOST 32

/* Opens a directory to empty it, with the right to do so. */
static int open_folder(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == EACCES && !fchmodat(parent, name, 0700, AT_SYMLINK_NOFOLLOW))
		fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && !fstat(fd, &st) && (st.st_mode & 0700) != 0700)
		fchmod(fd, 0700);
	return fd;
}

/* A name nobody uses. */
static char *fresh_name(int data)
{
	/* Not from the first one each time: of what lies deep thousands are put aside. */
	static unsigned next;

	for (;;) {
		char *name = text_format(STAGING_PREFIX "%d-%u", getpid(), next++);
		if (faccessat(data, name, F_OK, AT_SYMLINK_NOFOLLOW))
			return name;
		free(name);
	}
}

/* Gives it a name that the next command removes, should this one not come to its end. In the jail's epilog each node's
 * is process 1: a name that was free a moment ago may be another's. */
static int hide(int from, const char *name, int data, char **hidden)
{
	for (int attempt = 0; attempt < 100; attempt++) {
		free(*hidden);
		*hidden = fresh_name(data);
		if (!renameat2(from, name, data, *hidden, RENAME_NOREPLACE))
			return 0;
		/* NFS knows no such rename. The plain one replaces an empty directory at most. */
		if ((errno == EINVAL || errno == ENOSYS) && !renameat(from, name, data, *hidden))
			return 0;
		if (errno != EEXIST && errno != ENOTEMPTY)
			return -1;
	}
	return -1;
}

struct removal {
	int top;
	struct text_list aside; /* names in it that hold what lay deeper */
};

/* Removes `name` and all below it, but what it put aside. Returns 0, or -1 and errno. That another command is at the same
 * is no failure. */
static int remove_below(struct removal *removal, int parent, const char *name, int level)
{
	int fd = open_folder(parent, name), number = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : errno == ENOTDIR || errno == ELOOP ? unlinkat(parent, name, 0) : -1;
	if (level == LEVELS_MOST) {
		char *aside = NULL;
		int moved = hide(parent, name, removal->top, &aside);
		number = errno;
		close(fd);
		text_list_take(&removal->aside, aside);
		errno = number;
		return moved;
	}
	DIR *stream = fdopendir(fd);
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		const char *child = entry->d_name;
		if (!strcmp(child, ".") || !strcmp(child, ".."))
			continue;
		bool folder = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
		if ((folder ? remove_below(removal, fd, child, level + 1) : unlinkat(fd, child, 0)) && errno != ENOENT)
			number = errno;
	}
	if (stream)
		closedir(stream);
	errno = number;
	return number || (unlinkat(parent, name, AT_REMOVEDIR) && errno != ENOENT) ? -1 : 0;
}

/* The same with what was put aside: however deep it is. */
static int remove_tree(int top, const char *name)
{
	struct removal removal = { .top = top };
	int number = remove_below(&removal, top, name, 0) ? errno : 0;

	for (size_t i = 0; i < removal.aside.n; i++)
		if (remove_below(&removal, top, removal.aside.items[i], 0))
			number = errno;
	text_list_free(&removal.aside);
	errno = number;
	return number ? -1 : 0;
}

static void sweep(int data)
{
	int copy = openat(data, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);

	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		if (!staging_is_name(entry->d_name))
			continue;
		scoped_fd fd = open_folder(data, entry->d_name);
		/* Whoever works on it holds the lock, and loses it when killed. */
		if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
			remove_tree(data, entry->d_name);
	}
	if (stream)
		closedir(stream);
}

static int open_swept(const char *path, struct jail_error *err)
{
	int data = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (data < 0) {
		jail_fail(err, "open", errno, "cannot open the directory that containers lie in");
		return jail_error_at(err, NULL, 0, path);
	}
	sweep(data);
	return data;
}

int staging_data(const struct settings *settings, struct jail_error *err)
{
	return settings_directory(settings, "ENROOT_DATA_PATH", err) ? -1
	       : open_swept(settings_get(settings, "ENROOT_DATA_PATH"), err);
}

int staging_begin(struct staging *staging, const struct settings *settings, struct jail_error *err)
{
	/* It is ended also where it never began. */
	*staging = (struct staging){ .data = -1, .lock = -1 };
	return settings_directory(settings, "ENROOT_DATA_PATH", err) ? -1
	       : staging_begin_in(staging, settings_get(settings, "ENROOT_DATA_PATH"), err);
}

int staging_begin_in(struct staging *staging, const char *folder, struct jail_error *err)
{
	struct stat st;

	*staging = (struct staging){ .data = open_swept(folder, err), .lock = -1 };
	if (staging->data < 0)
		return -1;
	do {
		free(staging->name);
		jail_close(&staging->lock);
		staging->name = fresh_name(staging->data);
		if (mkdirat(staging->data, staging->name, 0700))
			return jail_fail(err, "mkdir", errno, "cannot make a directory in %s", folder);
		staging->lock = openat(staging->data, staging->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		/* Before the lock was there, another command may have taken it for left behind. */
		if (staging->lock < 0 && errno != ENOENT)
			return jail_fail(err, "open", errno, "cannot open a directory that was just made in %s; look at umask and "
					 "ulimit -n", folder);
	} while (staging->lock < 0 || (flock(staging->lock, LOCK_EX) && errno == EINTR) ||
		 (!fstat(staging->lock, &st) && !st.st_nlink));
	staging->path = text_format("%s/%s", folder, staging->name);
	return 0;
}

/* Puts the new root in the place of one that is there, which gets a name that the next command removes. At no moment is
 * there none, but on file systems that cannot exchange names (NFS). */
static int replace(struct staging *staging, const char *name)
{
	if (!renameat2(staging->data, staging->name, staging->data, name, RENAME_EXCHANGE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	scoped_free char *old = fresh_name(staging->data);
	if (renameat(staging->data, name, staging->data, old) ||
	    renameat2(staging->data, staging->name, staging->data, name, RENAME_NOREPLACE))
		return -1;
	free(staging->name);
	staging->name = text_copy(old, strlen(old));
	return 0;
}

int staging_commit(struct staging *staging, const char *name, bool force, struct jail_error *err)
{
	if (!renameat2(staging->data, staging->name, staging->data, name, RENAME_NOREPLACE)) {
		free(staging->name);
		staging->name = NULL;
		return 0;
	}
	/* staging_end removes the old one. */
	if (errno == EEXIST && force && !replace(staging, name))
		return 0;
	jail_fail(err, "rename", errno, "%s", errno == EEXIST ? STAGING_TAKEN : "cannot give the container its name");
	return jail_error_at(err, NULL, 0, name);
}

void staging_end(struct staging *staging)
{
	if (staging->name)
		remove_tree(staging->data, staging->name);
	jail_close(&staging->lock);
	jail_close(&staging->data);
	free(staging->name);
	free(staging->path);
}

int staging_remove(int data, const char *name, struct jail_error *err)
{
	scoped_free char *hidden = NULL;
	scoped_fd lock = openat(data, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (lock >= 0)
		flock(lock, LOCK_EX | LOCK_NB);
	if (hide(data, name, data, &hidden))
		jail_fail(err, "rename", errno, "cannot remove the container");
	else if (remove_tree(data, hidden))
		jail_fail(err, "unlink", errno, "cannot remove all of the container; what is left is %s, and the next command "
			  "tries again", hidden);
	else
		return 0;
	return jail_error_at(err, NULL, 0, name);
}
