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

#include "../core/filesystem.h"
#include "../core/scoped.h"
#include "../core/sys.h"
#include "../core/tree.h"

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

/* Opens `path` (made if missing) and holds its lock: two steps of a job may start at once. */
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

/* HOLDER/JOB/!dev!shm for /dev/shm: by target and not by line, which an edit of the plan would move. */
static int holder_path(const struct jail_entry *entry, uint32_t job, char path[PATH_MAX], struct jail_error *err)
{
	size_t used = (size_t)snprintf(path, PATH_MAX, JAIL_HOLDER "/%u/", job);

	if (strlen(entry->target) > NAME_MAX)
		return jail_fail(err, NULL, 0, "the target of a per-job mount is longer than %d bytes", NAME_MAX);
	for (const char *c = entry->target; *c; c++)
		path[used++] = *c == '/' ? '!' : *c;
	path[used] = '\0';
	return 0;
}

/* Opens `path`, the place of the job's mount for `entry`. A private /dev that a killed step left half
 * filled is taken away first: "tty" is made last. */
static int open_place(const char *path, const struct jail_entry *entry)
{
	int place = open_directory(path);

	if (place < 0 || entry->type != JAIL_DEV || is_mount(place) != 1 || !faccessat(place, "tty", F_OK, 0))
		return place;
	(void)sys_umount2(path, JAIL_MNT_DETACH);
	jail_close(&place);
	return open_directory(path);
}

/* A clone of the job's mount for `entry`, which is made first if it is not there. The caller holds the
 * lock of the job's directory. */
static int take(const struct jail_entry *entry, uint32_t job, struct jail_error *err)
{
	char path[PATH_MAX];

	if (holder_path(entry, job, path, err) || make_directory(path, err))
		return -1;
	scoped_fd place = open_place(path, entry);
	if (place < 0)
		return jail_fail(err, "open", errno, "cannot open \"%s\"", path);
	if (is_mount(place) != 1) {
		mode_t old = umask(0);
		scoped_fd made = jail_filesystem_open(entry, err);
		umask(old);
		if (made < 0)
			return -1;
		if (sys_move_mount(made, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
			return jail_fail(err, "move_mount", errno, "cannot mount \"%s\"", path);
		if (jail_tree_complete(made, entry, err)) {
			/* A half-filled one must not pass for whole in the next step. */
			(void)sys_umount2(path, JAIL_MNT_DETACH);
			return -1;
		}
	}
	return jail_filesystem_clone(path, entry->type == JAIL_DEV, 0, 0, err);
}

int jail_job_mounts_take(const struct jail_plan *plan, uint32_t job, struct jail_job_mounts *mounts,
			 struct jail_error *err)
{
	scoped_fd lock = -1;
	char path[PATH_MAX];

	mounts->n = plan->n_entries;
	mounts->mounts = malloc((mounts->n + 1) * sizeof(int));
	if (!mounts->mounts)
		return jail_fail(err, "malloc", ENOMEM, "not enough memory for the job's mounts");
	for (size_t i = 0; i < mounts->n; i++)
		mounts->mounts[i] = -1;
	for (size_t i = 0; i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		if (entry->scope != JAIL_SCOPE_JOB)
			continue;
		if (lock < 0) {
			snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
			if (make_holder(err) || (lock = open_locked(path, err)) < 0) {
				jail_job_mounts_close(mounts);
				return jail_error_at(err, plan->file, entry->line, entry->target);
			}
		}
		mounts->mounts[i] = take(entry, job, err);
		if (mounts->mounts[i] < 0) {
			jail_job_mounts_close(mounts);
			return jail_error_at(err, plan->file, entry->line, entry->target);
		}
	}
	return 0;
}

/* Whether the holder has mounts of a job that is not `job`. */
static bool holds_others(uint32_t job)
{
	char own[16];
	bool others = false;
	struct dirent *entry;
	DIR *list = opendir(JAIL_HOLDER);

	if (!list)
		return true;
	snprintf(own, sizeof(own), "%u", job);
	while (!others && (entry = readdir(list)))
		others = entry->d_name[0] != '.' && strcmp(entry->d_name, own);
	closedir(list);
	return others;
}

int jail_job_mounts_hide(uint32_t job, struct jail_error *err)
{
	scoped_fd place = open_directory(JAIL_HOLDER);

	if (place < 0)
		return errno == ENOENT ? 0 : jail_fail(err, "open", errno, "cannot open \"" JAIL_HOLDER "\"");
	/* Unmounting takes an RCU grace period, and only other jobs' mounts are worth it. */
	if (!holds_others(job))
		return 0;
	if (is_mount(place) == 1 && sys_umount2(JAIL_HOLDER, JAIL_MNT_DETACH))
		return jail_fail(err, "umount2", errno, "cannot hide \"" JAIL_HOLDER "\" from the step");
	return 0;
}

int jail_job_mounts_give(struct jail_job_mounts *mounts, size_t index)
{
	return jail_keep(&mounts->mounts[index]);
}

void jail_job_mounts_close(struct jail_job_mounts *mounts)
{
	for (size_t i = 0; mounts->mounts && i < mounts->n; i++)
		jail_close(&mounts->mounts[i]);
	free(mounts->mounts);
	mounts->mounts = NULL;
	mounts->n = 0;
}

int jail_job_mounts_release(uint32_t job, struct jail_error *err)
{
	char path[PATH_MAX], child[PATH_MAX];
	struct dirent *entry;
	int result = 0;

	snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
	DIR *list = opendir(path);
	if (!list)
		return errno == ENOENT ? 0 : jail_fail(err, "opendir", errno, "cannot read \"%s\"", path);
	while ((entry = readdir(list))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(child, sizeof(child), JAIL_HOLDER "/%u/%.255s", job, entry->d_name);
		if ((sys_umount2(child, JAIL_MNT_DETACH) && errno != EINVAL) || rmdir(child))
			result = jail_fail(err, "umount2", errno, "cannot release \"%s\"", child);
	}
	closedir(list);
	if (!result && rmdir(path))
		result = jail_fail(err, "rmdir", errno, "cannot remove \"%s\"", path);
	return result;
}
