/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, finds and removes the mounts that all steps of a job share. Files of this folder call it. */
#define _GNU_SOURCE
#include "job_mounts.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/jail/tree.h"
#include "job_namespaces.h"

/* A file in the job's directory on which each of its slurmstepds holds a shared lock. */
#define PRESENCE "present"

/* Whether `fd` is the root of a mount. */
static int is_mount(int fd)
{
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH, 0, &st))
		return -1;
	return (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
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
	static const struct jail_parameter parameters[] = { { "size", "1m" }, { "mode", "0700" } };

	if (make_directory("/run/cellblock", err))
		return -1;
	scoped_fd lock = open_locked("/run/cellblock", err);
	if (lock < 0 || make_directory(JAIL_HOLDER, err))
		return -1;
	scoped_fd place = open_directory(JAIL_HOLDER);
	if (place < 0)
		return jail_fail(err, "open", errno, "cannot open \"" JAIL_HOLDER "\"");
	if (is_mount(place) == 1)
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

/* "!dev!shm" for /dev/shm: by target and not by line, which an edit of the plan would move. */
static int place_name(const struct jail_entry *entry, char name[NAME_MAX + 1], struct jail_error *err)
{
	size_t length = strlen(entry->target);

	if (length > NAME_MAX)
		return jail_fail(err, NULL, 0, "the target of a per-job mount is longer than %d bytes", NAME_MAX);
	for (size_t i = 0; i <= length; i++)
		name[i] = entry->target[i] == '/' ? '!' : entry->target[i];
	return 0;
}

static int open_place(int directory, const char *name)
{
	return openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* umount2(2) has no form for descriptors, and the thread's working directory is not ours to change. */
int jail_job_detach(int directory, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", directory, name);
	return sys_umount2(path, JAIL_MNT_DETACH);
}

/* Whether the job's mount for `entry` is there. A private /dev that a killed step left half filled is
 * not: "tty" is made last. */
static bool is_made(int place, const struct jail_entry *entry)
{
	return is_mount(place) == 1 && (entry->type != JAIL_DEV || !faccessat(place, "tty", F_OK, 0));
}

static int make(int directory, const char *name, const struct jail_entry *entry, struct jail_error *err)
{
	mode_t old = umask(0);
	scoped_fd made = jail_filesystem_open(entry, err);
	umask(old);

	if (made < 0 || jail_job_attach(directory, name, made, err))
		return -1;
	if (jail_tree_complete(made, entry, err)) {
		/* A half-filled one must not pass for whole in the next step. */
		(void)jail_job_detach(directory, name);
		return -1;
	}
	return 0;
}

static int take(int directory, const struct jail_entry *entry, struct jail_error *err)
{
	char name[NAME_MAX + 1];

	if (place_name(entry, name, err))
		return -1;
	if (mkdirat(directory, name, 0700) && errno != EEXIST)
		return jail_fail(err, "mkdirat", errno, "cannot make \"%s\" in \"" JAIL_HOLDER "\"", name);
	scoped_fd place = open_place(directory, name);
	if (place < 0)
		return jail_fail(err, "openat", errno, "cannot open \"%s\" in \"" JAIL_HOLDER "\"", name);
	if (!is_made(place, entry)) {
		if (is_mount(place) == 1)
			(void)jail_job_detach(directory, name);
		if (make(directory, name, entry, err))
			return -1;
		jail_close(&place);
		place = open_place(directory, name);
	}
	int clone = sys_open_tree(place, "", OPEN_TREE_CLONE | AT_EMPTY_PATH | (entry->type == JAIL_DEV ? AT_RECURSIVE : 0));
	return clone < 0 ? jail_fail(err, "open_tree", errno, "cannot take the job's mount \"%s\"", name) : clone;
}

int *jail_job_mounts_take(int directory, const struct jail_plan *plan, struct jail_error *err)
{
	int *mounts = malloc((plan->n_entries + 1) * sizeof(int));

	if (!mounts) {
		jail_fail(err, "malloc", ENOMEM, "not enough memory for the job's mounts");
		return NULL;
	}
	for (size_t i = 0; i < plan->n_entries; i++)
		mounts[i] = -1;
	for (size_t i = 0; i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		if (!jail_entry_is_shared(entry) || (entry->only_if && access(entry->only_if, F_OK)))
			continue;
		mounts[i] = take(directory, entry, err);
		if (mounts[i] < 0) {
			jail_error_at(err, plan->file, entry->line, entry->target);
			jail_job_mounts_close(mounts, plan);
			return NULL;
		}
	}
	return mounts;
}

void jail_job_mounts_close(int *mounts, const struct jail_plan *plan)
{
	for (size_t i = 0; mounts && i < plan->n_entries; i++)
		jail_close(&mounts[i]);
	free(mounts);
}

int jail_job_mounts_hide(struct jail_error *err)
{
	scoped_fd place = open_directory(JAIL_HOLDER);

	if (place < 0)
		return errno == ENOENT ? 0 : jail_fail(err, "open", errno, "cannot open \"" JAIL_HOLDER "\"");
	if (is_mount(place) == 1 && sys_umount2(JAIL_HOLDER, JAIL_MNT_DETACH))
		return jail_fail(err, "umount2", errno, "cannot hide \"" JAIL_HOLDER "\" from the job");
	return 0;
}

/* Takes away one thing of the job's directory: a mount on a directory, a pinned namespace on a file, or a
 * plain file. */
static int release_one(int directory, const struct dirent *entry, struct jail_error *err)
{
	const char *name = entry->d_name;

	if (jail_job_detach(directory, name) && errno != EINVAL)
		return jail_fail(err, "umount2", errno, "cannot release \"%s\" in \"" JAIL_HOLDER "\"", name);
	if (unlinkat(directory, name, 0) && (errno != EISDIR || unlinkat(directory, name, AT_REMOVEDIR)))
		return jail_fail(err, "unlinkat", errno, "cannot remove \"%s\" in \"" JAIL_HOLDER "\"", name);
	return 0;
}

int jail_job_mounts_clear(int directory, struct jail_error *err)
{
	struct dirent *entry;
	int result = 0;

	DIR *list = fdopendir(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!list)
		return jail_fail(err, "fdopendir", errno, "cannot read a job's directory in \"" JAIL_HOLDER "\"");
	while ((entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			result |= release_one(directory, entry, err);
	closedir(list);
	return result;
}

static int remove_job(int directory, uint32_t job, const char *path, struct jail_error *err)
{
	struct stat st;

	if (fstat(directory, &st))
		return jail_fail(err, "fstat", errno, "cannot tell whose job \"%s\" is of", path);
	if (jail_job_mounts_clear(directory, err))
		return jail_error_at(err, NULL, 0, path);
	if (rmdir(path))
		return jail_fail(err, "rmdir", errno, "cannot remove \"%s\"", path);
	return jail_user_leave(job, st.st_uid, err);
}

int jail_job_mounts_release(uint32_t job, struct jail_error *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
	scoped_fd fd = open_directory(path);
	if (fd < 0)
		return errno == ENOENT ? 0 : jail_fail(err, "open", errno, "cannot open \"%s\"", path);
	return remove_job(fd, job, path, err);
}

static int sweep_job(uint32_t job, bool (*is_over)(uint32_t), struct jail_error *err)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
	scoped_fd fd = open_directory(path);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || is_removed(fd) || !jail_job_is_deserted(fd) || !is_over(job))
		return 0;
	return remove_job(fd, job, path, err);
}

int jail_job_mounts_sweep(bool (*is_over)(uint32_t job), struct jail_error *err)
{
	struct dirent *entry;
	int result = 0;
	char *end;

	DIR *list = opendir(JAIL_HOLDER);
	if (!list)
		return errno == ENOENT ? 0 : jail_fail(err, "opendir", errno, "cannot read \"" JAIL_HOLDER "\"");
	while ((entry = readdir(list))) {
		unsigned long job = strtoul(entry->d_name, &end, 10);
		if (job && job <= UINT32_MAX && !*end)
			result |= sweep_job((uint32_t)job, is_over, err);
	}
	closedir(list);
	return result;
}
