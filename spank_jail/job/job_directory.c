/* SPDX-License-Identifier: Apache-2.0 */
/* Opens, locks and marks the directory in which a node keeps the mounts and namespaces of a job. enter_step.c,
 * spool.c and the files of job_*.c call it. */
#define _GNU_SOURCE
#include "job_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

/* A file in the job's directory on which each of its slurmstepds holds a shared lock. */
#define PRESENCE "present"

bool jail_job_is_mount(int fd)
{
	struct statx st;

	return !statx(fd, "", AT_EMPTY_PATH, 0, &st) && (st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static int open_directory(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int make_directory(const char *path, struct jail_error *err)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return jail_fail(err, "mkdir", errno, "cannot make \"%s\" for the mounts of jobs", path);
	return 0;
}

/* Whether it was taken away between its opening and its locking. */
static bool is_removed(int directory)
{
	struct stat st;

	return !fstat(directory, &st) && st.st_nlink == 0;
}

/* Opens `path` (made if missing) and holds its lock. */
static int open_locked(const char *path, struct jail_error *err)
{
	if (make_directory(path, err))
		return -1;
	scoped_fd fd = open_directory(path);
	if (fd < 0 || flock(fd, LOCK_EX))
		return jail_fail(err, fd < 0 ? "open" : "flock", errno, "cannot lock \"%s\"", path);
	return jail_keep(&fd);
}

/* The holder is a mount of its own, so that one umount takes everything below it out of a namespace. */
static int make_holder(struct jail_error *err)
{
	/* Each job and each user has a page or two: 1m is full with 250 jobs. */
	static const struct jail_parameter parameters[] = { { "size", "64m" }, { "mode", "0700" } };

	if (make_directory("/run/cellblock", err))
		return -1;
	scoped_fd lock = open_locked("/run/cellblock", err);
	if (lock < 0 || make_directory(JAIL_HOLDER, err))
		return -1;
	scoped_fd place = open_directory(JAIL_HOLDER);
	if (place < 0)
		return jail_fail(err, "open", errno, "cannot open \"" JAIL_HOLDER "\"");
	if (jail_job_is_mount(place))
		return 0;
	scoped_fd mount = jail_filesystem_new("tmpfs", parameters, 2,
					      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
	if (mount < 0)
		return -1;
	if (sys_move_mount(mount, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) ||
	    sys_mount_setattr(mount, "", AT_EMPTY_PATH, 0, JAIL_MS_PRIVATE))
		return jail_fail(err, "move_mount", errno, "cannot mount \"" JAIL_HOLDER "\"");
	return 0;
}

static int open_in_holder(const char *path, struct jail_error *err)
{
	/* The usual case, any step but the first, costs three calls. */
	scoped_fd fd = open_directory(path);
	if (fd >= 0 && !flock(fd, LOCK_EX) && !is_removed(fd))
		return jail_keep(&fd);
	if (make_holder(err))
		return -1;
	do {
		jail_close(&fd);
		fd = open_locked(path, err);
	} while (fd >= 0 && is_removed(fd));
	return jail_keep(&fd);
}

int jail_job_open(uint32_t job, struct jail_error *err)
{
	char path[64];

	snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
	return open_in_holder(path, err);
}

int jail_job_find(uint32_t job)
{
	char path[64];

	snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
	return open_directory(path);
}

bool jail_job_try_lock(int directory)
{
	return !flock(directory, LOCK_EX | LOCK_NB) && !is_removed(directory);
}

int jail_user_open(uid_t user, struct jail_error *err)
{
	char path[64];

	snprintf(path, sizeof(path), JAIL_HOLDER "/user-%u", (unsigned)user);
	return open_in_holder(path, err);
}

/* By the directory's owner. Nobody but root enters what lies above it. */
int jail_job_note_user(int directory, uid_t user, struct jail_error *err)
{
	return fchown(directory, user, (gid_t)-1) ? jail_fail(err, "fchown", errno, "cannot note whose job it is") : 0;
}

bool jail_job_user_has_another(uint32_t job, uid_t user)
{
	struct dirent *entry;
	struct stat st;
	bool found = false;

	DIR *list = opendir(JAIL_HOLDER);
	while (list && !found && (entry = readdir(list)))
		found = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' && strtoul(entry->d_name, NULL, 10) != job &&
			!fstatat(dirfd(list), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) && st.st_uid == user;
	if (list)
		closedir(list);
	return found;
}

int jail_job_stay(int directory, struct jail_error *err)
{
	scoped_fd fd = openat(directory, PRESENCE, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB))
		return jail_fail(err, fd < 0 ? "openat" : "flock", errno, "cannot mark the job as present in \"" JAIL_HOLDER "\"");
	return jail_keep(&fd);
}

bool jail_job_is_deserted(int directory)
{
	scoped_fd fd = openat(directory, PRESENCE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? errno == ENOENT : !flock(fd, LOCK_EX | LOCK_NB);
}

int jail_job_attach(int directory, const char *name, int mount, struct jail_error *err)
{
	if (sys_move_mount(mount, "", directory, name, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot mount \"%s\" for the job in \"" JAIL_HOLDER "\"", name);
	return 0;
}

/* umount2(2) has no form for descriptors, and the thread's working directory is not ours to change. */
int jail_job_detach(int directory, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, name);
	return sys_umount2(path, JAIL_MNT_DETACH);
}

int jail_holder_hide(struct jail_error *err)
{
	scoped_fd place = open_directory(JAIL_HOLDER);

	if (place < 0)
		return errno == ENOENT ? 0 : jail_fail(err, "open", errno, "cannot open \"" JAIL_HOLDER "\"");
	if (jail_job_is_mount(place) && sys_umount2(JAIL_HOLDER, JAIL_MNT_DETACH))
		return jail_fail(err, "umount2", errno, "cannot hide \"" JAIL_HOLDER "\" from the job");
	return 0;
}
