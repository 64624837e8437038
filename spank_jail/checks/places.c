/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that directories of the node, such as /tmp, are writable and have free space and
 * inodes. node_checks.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "check.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

/* Not /run/bcast: what users leave there is theirs to remove, and must not drain a node. */
#define PLACES "/run,/tmp,/var/log,/var/spool/slurmd"

static int for_each_place(int (*look)(const char *place))
{
	const char *places = check_word("places", PLACES);
	scoped_free char *copy = text_copy(places, strlen(places));
	char *rest = copy, *place;
	int worst = CHECK_PASSED;

	while (worst == CHECK_PASSED && (place = strsep(&rest, ",")))
		if (*place)
			worst = look(place);
	return worst;
}

static int try_writing(const char *place)
{
	scoped_free char *name = text_format("%s/.cellblock-health", place);
	struct statvfs st;

	if (statvfs(place, &st))
		return check_failed("%s: %s", place, strerrordesc_np(errno));
	if (st.f_flag & ST_RDONLY)
		return check_failed("%s is read-only", place);
	scoped_fd fd = open(place, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	bool named = fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR);
	/* No link that somebody left is followed: the places are root's alone, but for /tmp on a bare machine. */
	if (named)
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int number = fd < 0 || write(fd, "x", 1) == 1 ? 0 : errno;
	if (fd < 0)
		number = errno;
	if (named && fd >= 0)
		unlink(name);
	if (number == EROFS || number == EIO || number == ENOSPC || number == EDQUOT || number == ENOENT)
		return check_failed("%s cannot be written: %s", place, strerrordesc_np(number));
	return number ? check_could_not_run("%s: %s", place, strerrordesc_np(number)) : CHECK_PASSED;
}

int check_writable(void)
{
	return for_each_place(try_writing);
}

static unsigned percent_used(uint64_t all, uint64_t free_now)
{
	return all ? (unsigned)((all - free_now) * 100 / all) : 0;
}

static int look_for_room(const char *place)
{
	struct statvfs st;

	if (statvfs(place, &st))
		return check_could_not_run("%s: %s", place, strerrordesc_np(errno));
	unsigned full = percent_used(st.f_blocks, st.f_bavail), inodes = percent_used(st.f_files, st.f_favail);
	if (full >= check_number("full", 95))
		return check_failed("%s is %u %% full", place, full);
	if (inodes >= check_number("inodes", 95))
		return check_failed("%s has used %u %% of its inodes", place, inodes);
	return CHECK_PASSED;
}

int check_disk(void)
{
	return for_each_place(look_for_room);
}
