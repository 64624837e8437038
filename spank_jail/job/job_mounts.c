/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, finds and removes the mounts that all steps of a job share, such as its private /tmp (x-jail.per-job in the
 * mount plan). open_step.c, enter_step.c and plugin.c call it. */
#define _GNU_SOURCE
#include "job_mounts.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/jail/tree.h"
#include "job_directory.h"
#include "step_inits.h"

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

/* Whether the job's mount for `entry` is there. A private /dev that a killed step left half filled is
 * not: "tty" is made last. */
static bool is_made(int place, const struct jail_entry *entry)
{
	return jail_job_is_mount(place) && (entry->type != JAIL_DEV || !faccessat(place, "tty", F_OK, 0));
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

static int clone_mount(int directory, const struct jail_entry *entry, struct jail_error *err)
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
		if (jail_job_is_mount(place))
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
		mounts[i] = clone_mount(directory, entry, err);
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

static int remove_job(int directory, uint32_t job, jail_user_release *release, struct jail_error *err)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), JAIL_HOLDER "/%u", job);
	if (fstat(directory, &st))
		return jail_fail(err, "fstat", errno, "cannot tell whose job \"%s\" is of", path);
	jail_step_inits_end(directory, st.st_uid, release);
	if (jail_job_mounts_clear(directory, err))
		return jail_error_at(err, NULL, 0, path);
	if (rmdir(path))
		return jail_fail(err, "rmdir", errno, "cannot remove \"%s\"", path);
	return jail_user_leave(job, st.st_uid, release, err);
}

int jail_job_mounts_release(uint32_t job, jail_user_release *release, struct jail_error *err)
{
	scoped_fd fd = jail_job_find(job);

	if (fd < 0)
		return errno == ENOENT ? 0 : jail_fail(err, "open", errno, "cannot open \"" JAIL_HOLDER "/%u\"", job);
	return remove_job(fd, job, release, err);
}

static int sweep_job(uint32_t job, bool (*is_over)(uint32_t), jail_user_release *release, struct jail_error *err)
{
	scoped_fd fd = jail_job_find(job);

	if (fd < 0 || !jail_job_try_lock(fd) || !jail_job_is_deserted(fd) || !is_over(job))
		return 0;
	return remove_job(fd, job, release, err);
}

int jail_job_mounts_sweep(bool (*is_over)(uint32_t job), jail_user_release *release, struct jail_error *err)
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
			result |= sweep_job((uint32_t)job, is_over, release, err);
	}
	closedir(list);
	return result;
}
