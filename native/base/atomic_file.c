/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file atomically: it has its name only when it is complete. enroot/command, enroot/importing and native/cache
 * call it. */
#define _GNU_SOURCE
#include "atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scoped.h"
#include "text.h"

/* At a name for a draft. */
#define ATTEMPTS 16

static int fail(const struct atomic_file *output, const char *call, int number, const char *message, struct jail_error *err)
{
	jail_fail(err, call, number, "%s", message);
	return jail_error_at(err, NULL, 0, output->path);
}

static int exists(const struct atomic_file *output, struct jail_error *err)
{
	return fail(output, NULL, EEXIST, "it exists already; remove it, give another name with --output, or use --force", err);
}

/* Removes what killed commands left beside this name: a draft, or a link that was to replace it. Whoever still writes
 * holds the lock. */
static void sweep(const struct atomic_file *output)
{
	scoped_free char *prefix = text_format(".%s.enroot-", output->name);
	int copy = openat(output->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);

	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		const char *number = entry->d_name + strlen(prefix);
		/* Of a draft, or it is a file of the user's. */
		if (!text_starts(entry->d_name, prefix) || !*number || number[strspn(number, "0123456789")])
			continue;
		scoped_fd fd = openat(output->folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
			unlinkat(output->folder, entry->d_name, 0);
	}
	if (stream)
		closedir(stream);
}

char *atomic_file_draft_name(const char *name)
{
	unsigned long long number = 0;

	if (getrandom(&number, sizeof(number), 0) < 0)
		number = (unsigned long long)getpid();
	return text_format(".%s.enroot-%llu", name, number);
}

/* Where the file system has no nameless files (NFS). Never a file that is there: where others may write, it is theirs, and what is
 * written into it they may change. */
static int open_draft(struct atomic_file *output, struct jail_error *err)
{
	struct stat st;

	for (int i = 0; i < ATTEMPTS; i++) {
		free(output->draft);
		output->draft = atomic_file_draft_name(output->name);
		output->fd = openat(output->folder, output->draft, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (output->fd < 0 && errno == EEXIST)
			continue;
		if (output->fd < 0)
			return fail(output, "open", errno, "cannot make it", err);
		/* Before the lock was there, another command may have taken it for left behind. */
		flock(output->fd, LOCK_EX);
		if (!fstat(output->fd, &st) && st.st_nlink)
			return 0;
		jail_close(&output->fd);
	}
	return fail(output, "open", EEXIST, "others take each name for its draft", err);
}

int atomic_file_open(struct atomic_file *output, const char *path, bool force, struct jail_error *err)
{
	const char *slash = strrchr(path, '/');
	scoped_free char *folder = slash ? text_copy(path, (size_t)(slash - path)) : text_copy(".", 1);

	*output = (struct atomic_file){ .fd = -1, .force = force, .path = text_format("%s", path),
				   .name = text_format("%s", slash ? slash + 1 : path) };
	output->folder = open(*folder ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (output->folder < 0)
		return fail(output, "open", errno, "cannot open the directory that it is to lie in", err);
	if (!force && !faccessat(output->folder, output->name, F_OK, AT_SYMLINK_NOFOLLOW))
		return exists(output, err);
	sweep(output);
	output->fd = openat(output->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (output->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
		return open_draft(output, err);
	if (output->fd < 0)
		return fail(output, "open", errno, "cannot make it", err);
	/* Of the file, whatever its name is then. */
	flock(output->fd, LOCK_EX);
	return 0;
}

int atomic_file_commit(struct atomic_file *output, mode_t mode, struct jail_error *err)
{
	mode_t mask = umask(0);
	scoped_free char *path = text_format("/proc/self/fd/%d", output->fd);
	scoped_free char *other = atomic_file_draft_name(output->name);
	int result;

	umask(mask);
	if (fchmod(output->fd, mode & ~mask))
		return fail(output, "fchmod", errno, "cannot set its mode", err);
	if (output->draft)
		result = renameat2(output->folder, output->draft, output->folder, output->name,
				   output->force ? 0 : RENAME_NOREPLACE);
	else
		result = linkat(AT_FDCWD, path, output->folder, output->name, AT_SYMLINK_FOLLOW);
	/* A link replaces nothing, a rename does. */
	if (result && errno == EEXIST && output->force && !output->draft)
		result = linkat(AT_FDCWD, path, output->folder, other, AT_SYMLINK_FOLLOW) ||
			 renameat(output->folder, other, output->folder, output->name) ? -1 : 0;
	if (result)
		return errno == EEXIST ? exists(output, err) : fail(output, "linkat", errno, "cannot give it its name", err);
	return 0;
}

void atomic_file_close(struct atomic_file *output)
{
	/* After a commit it has another name. */
	if (output->draft && output->fd >= 0)
		unlinkat(output->folder, output->draft, 0);
	jail_close(&output->fd);
	jail_close(&output->folder);
	free(output->path);
	free(output->name);
	free(output->draft);
}
