/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a running container of a name on this node, in /proc. container.c calls it. */
#define _GNU_SOURCE
#include "running_containers.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/container/staging_name.h"
#include "native/base/text.h"
#include "native/base/scoped.h"

#define MAX_MOUNTINFO (4UL * 1024 * 1024)

/* Whether its command line is "PROGRAM READY LIFE NAME": enroot-hold. */
static bool keeps(int process, const char *name)
{
	char text[512];
	scoped_fd fd = openat(process, "cmdline", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *words[5];
	size_t n = 0;

	if (length <= 0)
		return false;
	text[length] = '\0';
	for (const char *word = text; word < text + length && n < 5; word += strlen(word) + 1)
		words[n++] = word;
	return n == 4 && text_starts(words[0], "/proc/self/fd/") && !strcmp(words[3], name);
}

/* Of root's processes one may be another user's: he runs a set-user-ID program under any name, and what joins it takes his
 * environment, and his mounts. */
static bool is_set_id(int process)
{
	struct statx st;

	return statx(process, "exe", AT_STATX_DONT_SYNC, STATX_MODE, &st) || st.stx_mode & (S_ISUID | S_ISGID);
}

static bool is_rooted(int process, const struct stat *root)
{
	struct stat st;

	return !fstatat(process, "root", &st, 0) && st.st_dev == root->st_dev && st.st_ino == root->st_ino;
}

/* The directory that a process has as its root, as its file system calls it: the fourth field of the line of "/" in
 * mountinfo (proc(5)). Of several the last lies above the others. NULL: it cannot be told. */
static char *root_directory(int process)
{
	struct jail_error ignored;
	scoped_free char *text = text_read(process, "mountinfo", MAX_MOUNTINFO, NULL, &ignored);
	char *found = NULL;

	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		char *fields[5] = { NULL };
		for (int i = 0; i < 5; i++)
			fields[i] = strsep(&line, " ");
		if (!fields[4] || strcmp(fields[4], "/"))
			continue;
		free(found);
		found = text_copy(fields[3], strlen(fields[3]));
	}
	return found;
}

/* Whether the container's root was removed while it runs (`enroot remove`, `create --force`): the directory is gone, or
 * has the name that enroot gives to what it is about to delete. */
static bool is_removed(int process)
{
	struct stat st;

	if (fstatat(process, "root", &st, 0))
		return errno == ESTALE;
	scoped_free char *directory = root_directory(process);
	const char *slash = directory ? strrchr(directory, '/') : NULL;
	return !st.st_nlink || (slash && (text_ends(directory, "//deleted") || staging_is_name(slash + 1)));
}

pid_t pyxis_running_container_find(const char *name, const char *root)
{
	DIR *stream = opendir("/proc");
	struct stat place, own;
	bool rooted = root && !stat(root, &place);
	pid_t holder = 0, member = 0, elsewhere = 0;

	for (struct dirent *entry; stream && !holder && (entry = readdir(stream));) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		scoped_fd process = openat(dirfd(stream), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		/* Others may call their programs as they like. */
		if (process < 0 || fstat(process, &own) || own.st_uid != geteuid())
			continue;
		bool inside = rooted && is_rooted(process, &place), keeping = keeps(process, name) && !is_set_id(process);
		pid_t pid = (pid_t)atol(entry->d_name);
		if (keeping && inside)
			holder = pid;
		else if (inside && !member)
			member = pid;
		else if (keeping && !elsewhere && !is_removed(process))
			elsewhere = pid;
	}
	if (stream)
		closedir(stream);
	/* The name may have been given anew while a container whose root was removed runs on: the root decides. */
	return holder ? holder : member ? member : elsewhere;
}
