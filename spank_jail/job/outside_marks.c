/* SPDX-License-Identifier: Apache-2.0 */
/* Marks jobs that run outside the jail, and tells whether all jobs of a user on this node do. slurm/step_selection.c
 * and pam_jail.c call it. */
#define _GNU_SOURCE
#include "outside_marks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job_directory.h"
#include "native/base/scoped.h"

#define MARKS "/run/cellblock/outside"

static void name_mark(char path[96], uint32_t job, uid_t user)
{
	snprintf(path, 96, MARKS "/%u.%u", (unsigned)user, job);
}

int jail_outside_note(uint32_t job, uid_t user, struct jail_error *err)
{
	char path[96];

	name_mark(path, job, user);
	if ((mkdir("/run/cellblock", 0700) && errno != EEXIST) || (mkdir(MARKS, 0700) && errno != EEXIST))
		return jail_fail(err, "mkdir", errno, "cannot make \"" MARKS "\": the user's ssh sessions on this node will be in the jail");
	scoped_fd fd = open(path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_SH))
		return jail_fail(err, fd < 0 ? "open" : "flock", errno, "cannot mark the job in \"" MARKS "\": the user's ssh sessions on this "
				 "node will be in the jail");
	return jail_keep(&fd);
}

void jail_outside_forget(uint32_t job, uid_t user)
{
	char path[96];

	name_mark(path, job, user);
	(void)unlink(path);
}

static bool is_held(int directory, const char *name)
{
	scoped_fd fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
}

static bool has_outside(uid_t user)
{
	char *end;
	struct dirent *entry;
	bool found = false;
	DIR *list = opendir(MARKS);

	while (list && !found && (entry = readdir(list)))
		found = strtoul(entry->d_name, &end, 10) == user && end != entry->d_name && *end == '.' && is_held(dirfd(list), entry->d_name);
	if (list)
		closedir(list);
	return found;
}

bool jail_outside_is_all(uid_t user)
{
	/* A job number that there is none of: any job of the jail is another. */
	return has_outside(user) && !jail_job_user_has_another(0, user);
}
