/* SPDX-License-Identifier: Apache-2.0 */
/* Locks the name of a container, so that one step at a time makes a container of that name. container.c calls it. */
#define _GNU_SOURCE
#include "name_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"

/* The one who had it before removes the file: then the lock is of a file that nobody finds any more. */
static bool is_current(const struct pyxis_name_lock *lock)
{
	struct stat held, there;

	return !fstat(lock->fd, &held) && !stat(lock->path, &there) && held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

/* Those of tasks that were killed while they had or awaited them. Whoever awaits one looks again whether it is there. */
static void sweep(const char *folder, const char *own)
{
	DIR *stream = opendir(folder);

	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		if (!text_starts(entry->d_name, ".pyxis_") || !text_ends(entry->d_name, ".lock") || !strcmp(entry->d_name, own))
			continue;
		scoped_free char *path = text_format("%s/%s", folder, entry->d_name);
		scoped_fd fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && is_current(&(struct pyxis_name_lock){ fd, path }))
			(void)unlink(path);
	}
	if (stream)
		closedir(stream);
}

int pyxis_name_lock_take(struct pyxis_name_lock *lock, const char *root, struct jail_error *err)
{
	const char *slash = strrchr(root, '/');

	scoped_free char *folder = text_copy(root, (size_t)(slash - root)), *name = text_format(".%s.lock", slash + 1);

	lock->path = text_format("%s/%s", folder, name);
	sweep(folder, name);
	for (;;) {
		lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (lock->fd < 0) {
			jail_fail(err, "open", errno, "cannot make the lock of the container's name; containers with names need a directory that "
				  "the user may write, on this node, too: ENROOT_DATA_PATH in enroot.conf");
			return jail_error_at(err, NULL, 0, lock->path);
		}
		while (flock(lock->fd, LOCK_EX))
			if (errno != EINTR)
				return 0;
		if (is_current(lock))
			return 0;
		jail_close(&lock->fd);
	}
}

void pyxis_name_lock_drop(struct pyxis_name_lock *lock)
{
	if (lock->fd >= 0)
		(void)unlink(lock->path);
	jail_close(&lock->fd);
	free(lock->path);
	lock->path = NULL;
}
