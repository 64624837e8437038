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

#include "../../spank_jail/core/scoped.h"

#define PREFIX ".enroot-"

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

/* Removes `name` and all below it. Returns 0, or -1 and errno. */
static int remove_tree(int parent, const char *name)
{
	int fd = open_folder(parent, name);

	if (fd < 0)
		return errno == ENOENT ? 0 : errno == ENOTDIR || errno == ELOOP ? unlinkat(parent, name, 0) : -1;
	DIR *stream = fdopendir(fd);
	int number = 0;
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		const char *child = entry->d_name;
		if (!strcmp(child, ".") || !strcmp(child, ".."))
			continue;
		bool folder = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
		if (folder ? remove_tree(fd, child) : unlinkat(fd, child, 0))
			number = errno;
	}
	if (stream)
		closedir(stream);
	if (number) {
		errno = number;
		return -1;
	}
	return unlinkat(parent, name, AT_REMOVEDIR);
}

/* A name nobody uses. */
static char *fresh_name(int data)
{
	for (unsigned i = 0;; i++) {
		char *name = text_format(PREFIX "%d-%u", getpid(), i);
		if (faccessat(data, name, F_OK, AT_SYMLINK_NOFOLLOW))
			return name;
		free(name);
	}
}

static void sweep(int data)
{
	int copy = openat(data, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);

	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		if (!text_starts(entry->d_name, PREFIX))
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
		staging->lock = openat(staging->data, staging->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		/* Before the lock was there, another command may have taken it for left behind. */
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

/* Gives it a name that the next command removes, should this one not come to its end. In the jail's epilog each node's
 * is process 1: a name that was free a moment ago may be another's. */
static int hide(int data, const char *name, char **hidden)
{
	for (int attempt = 0; attempt < 100; attempt++) {
		free(*hidden);
		*hidden = fresh_name(data);
		if (!renameat2(data, name, data, *hidden, RENAME_NOREPLACE))
			return 0;
		/* NFS knows no such rename. The plain one replaces an empty directory at most. */
		if ((errno == EINVAL || errno == ENOSYS) && !renameat(data, name, data, *hidden))
			return 0;
		if (errno != EEXIST && errno != ENOTEMPTY)
			return -1;
	}
	return -1;
}

int staging_remove(int data, const char *name, struct jail_error *err)
{
	scoped_free char *hidden = NULL;
	scoped_fd lock = openat(data, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (lock >= 0)
		flock(lock, LOCK_EX | LOCK_NB);
	if (hide(data, name, &hidden))
		jail_fail(err, "rename", errno, "cannot remove the container");
	else if (remove_tree(data, hidden))
		jail_fail(err, "unlink", errno, "cannot remove all of the container; what is left is %s, and the next command "
			  "tries again", hidden);
	else
		return 0;
	return jail_error_at(err, NULL, 0, name);
}
