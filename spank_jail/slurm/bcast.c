#define _GNU_SOURCE
#include "bcast.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/scoped.h"

/* srun --bcast --send-libs makes PROGRAM_libs with files in it; a user can make no deeper tree there. */
#define DEEPEST 2

static int remove_owned(int directory, uid_t uid, int depth);

static int remove_one(int directory, const char *name, uid_t uid, int depth)
{
	struct stat st;

	if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) || st.st_uid != uid)
		return 0;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(directory, name, 0);
	scoped_fd below = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (below < 0 || depth >= DEEPEST)
		return below < 0 ? -1 : 0;
	return remove_owned(below, uid, depth + 1) || unlinkat(directory, name, AT_REMOVEDIR) ? -1 : 0;
}

static int remove_owned(int directory, uid_t uid, int depth)
{
	struct dirent *entry;
	int copy = fcntl(directory, F_DUPFD_CLOEXEC, 0), result = 0;
	DIR *list = copy < 0 ? NULL : fdopendir(copy);

	if (!list) {
		jail_close(&copy);
		return -1;
	}
	while ((entry = readdir(list)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			result |= remove_one(directory, entry->d_name, uid, depth);
	closedir(list);
	return result;
}

int jail_bcast_sweep(const char *directory, uid_t uid, struct jail_error *err)
{
	scoped_fd all = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if ((all < 0 && errno == ENOENT) || (all >= 0 && !remove_owned(all, uid, 1)))
		return 0;
	jail_fail(err, all < 0 ? "open" : "unlinkat", errno, "cannot remove what sbcast left for uid %u", (unsigned)uid);
	return jail_error_at(err, NULL, 0, directory);
}
