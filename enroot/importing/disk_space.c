/* SPDX-License-Identifier: Apache-2.0 */
/* Checks before an import whether the disk has room, and explains a full disk afterwards. produce.c calls it. */
#define _GNU_SOURCE
#include "disk_space.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "native/base/report.h"
#include "progress.h"

/* Less than this is full: what failed to be written was a block or a few, at most 1 MiB. */
#define FULL (4ULL << 20)
#define WHAT_TO_DO                                                                                                      \
	"Make room there, or name a larger file system: --output or the working directory (import), ENROOT_DATA_PATH " \
	"(load), ENROOT_CACHE_PATH, ENROOT_TEMP_PATH"

static unsigned long long free_of(const struct statvfs *fs)
{
	return (unsigned long long)fs->f_bavail * fs->f_frsize;
}

/* The directory that the file lies in, or would if it had a name. */
static void find_place(int fd, char place[256])
{
	char link[32];
	struct stat st;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t length = readlink(link, place, 255);
	place[length > 0 ? length : 0] = '\0';
	char *slash = strrchr(place, '/');
	if (slash && slash > place && !fstat(fd, &st) && !S_ISDIR(st.st_mode))
		*slash = '\0';
	jail_one_line(place);
}

int disk_space_check(struct disk_space *space, int fd, unsigned long long total, struct jail_error *err)
{
	struct statvfs fs;
	char need[32], have[32];

	*space = (struct disk_space){ .fd = fd, .total = total };
	find_place(fd, space->place);
	if (fstatvfs(fd, &fs))
		return 0;
	space->free = free_of(&fs);
	if (total <= space->free)
		return 0;
	jail_fail(err, NULL, ENOSPC, "there is no room for the image: it needs at least %s, as its layers have compressed, and %s are "
		  "free. " WHAT_TO_DO, progress_bytes(total, need), progress_bytes(space->free, have));
	return jail_error_at(err, NULL, 0, space->place);
}

int disk_space_explain(const struct disk_space *space, int number, unsigned long long read, const char *temp, struct jail_error *err)
{
	char estimate[80] = "", need[32], have[32];
	struct statvfs fs, other;
	bool known = !fstatvfs(space->fd, &fs), is_temp;
	unsigned long long left = known ? free_of(&fs) : 0, used = space->free > left ? space->free - left : 0;

	/* Of the two, the one that is full; after EDQUOT neither seems to be. */
	is_temp = known && left >= FULL && !statvfs(temp, &other) && free_of(&other) < FULL;
	/* At least: not all that was read is written yet. */
	if (!is_temp && used && read && space->total > read)
		snprintf(estimate, sizeof(estimate), "; at least %s would be needed",
			 progress_bytes((unsigned long long)((double)used * (double)space->total / (double)read), need));
	if (is_temp)
		left = free_of(&other);
	jail_fail(err, NULL, 0, "there is no room left: %s, %s free%s. " WHAT_TO_DO,
		  number == EDQUOT ? "the quota is used up" : "it is full", progress_bytes(left, have), estimate);
	return jail_error_at(err, NULL, 0, is_temp ? temp : space->place);
}
