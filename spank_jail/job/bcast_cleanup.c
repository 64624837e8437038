/* SPDX-License-Identifier: Apache-2.0 */
/* Removes the files that sbcast and srun --bcast left on a node, when the user's last job there
 * ends. plugin.c calls it. */
#define _GNU_SOURCE
#include "bcast_cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"

/* sbcast --send-libs makes PROGRAM_libs, and in it another one for a program that is brought there, and so on. More levels
 * than a path has room for: */
#define MOST_LEVELS 4096

/* What is below `directory`: files are removed, directories moved to `all`, where the next round finds them. Counts those. */
static int empty(int all, int directory, uint64_t *moved)
{
	struct dirent *entry;
	char name[32];
	int copy = fcntl(directory, F_DUPFD_CLOEXEC, 0), result = 0;
	DIR *list = copy < 0 ? NULL : fdopendir(copy);

	if (!list) {
		jail_close(&copy);
		return -1;
	}
	while (!result && (entry = readdir(list))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (!unlinkat(directory, entry->d_name, 0))
			continue;
		/* Random: another user may bring files by the names that come next. */
		uint64_t number;
		if (errno != EISDIR || getrandom(&number, sizeof(number), 0) != sizeof(number))
			result = -1;
		snprintf(name, sizeof(name), ".%016" PRIx64, number);
		if (!result)
			result = renameat2(directory, entry->d_name, all, name, RENAME_NOREPLACE);
		*moved += !result;
	}
	closedir(list);
	return result;
}

static int remove_one(int all, const char *name, uid_t uid, uint64_t *moved)
{
	struct stat st;

	if (fstatat(all, name, &st, AT_SYMLINK_NOFOLLOW) || st.st_uid != uid)
		return 0;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(all, name, 0);
	scoped_fd below = openat(all, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return below < 0 || empty(all, below, moved) || unlinkat(all, name, AT_REMOVEDIR) ? -1 : 0;
}

/* What is in `all` and one level below. */
static int remove_owned(int all, uid_t uid, uint64_t *moved)
{
	struct dirent *entry;
	int result = 0;
	DIR *list = fdopendir(openat(all, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	if (!list)
		return -1;
	while ((entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			result |= remove_one(all, entry->d_name, uid, moved);
	closedir(list);
	return result;
}

int jail_bcast_sweep(const char *directory, uid_t uid, struct jail_error *err)
{
	uint64_t moved = 1;
	int result = 0;
	scoped_fd all = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (all < 0 && errno == ENOENT)
		return 0;
	for (int level = 0; all >= 0 && !result && moved && level < MOST_LEVELS; level++) {
		moved = 0;
		result = remove_owned(all, uid, &moved);
	}
	if (all >= 0 && !result)
		return 0;
	jail_fail(err, all < 0 ? "open" : "unlinkat", errno, "cannot remove what sbcast left for uid %u", (unsigned)uid);
	return jail_error_at(err, NULL, 0, directory);
}
