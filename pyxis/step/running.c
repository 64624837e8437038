#define _GNU_SOURCE
#include "running.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../enroot/text/text.h"
#include "../../spank_jail/core/scoped.h"

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

static bool is_rooted(int process, const struct stat *root)
{
	struct stat st;

	return !fstatat(process, "root", &st, 0) && st.st_dev == root->st_dev && st.st_ino == root->st_ino;
}

pid_t pyxis_running_find(const char *name, const char *root)
{
	DIR *stream = opendir("/proc");
	struct stat place, own;
	bool rooted = root && !stat(root, &place);
	pid_t keeper = 0, member = 0;

	for (struct dirent *entry; stream && !keeper && (entry = readdir(stream));) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		scoped_fd process = openat(dirfd(stream), entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		/* Others may call their programs as they like. */
		if (process < 0 || fstat(process, &own) || own.st_uid != geteuid())
			continue;
		if (keeps(process, name))
			keeper = (pid_t)atol(entry->d_name);
		else if (!member && rooted && is_rooted(process, &place))
			member = (pid_t)atol(entry->d_name);
	}
	if (stream)
		closedir(stream);
	return keeper ? keeper : member;
}
