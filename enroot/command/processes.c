/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the processes of each running container in /proc, for `enroot list -f`. list.c calls it. */
#define _GNU_SOURCE
#include "processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/base/text.h"

static bool read_status(struct process *process, const char *folder)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("%s/stat", folder);
	scoped_free char *text = text_read(AT_FDCWD, path, 65536, NULL, &ignored);
	char *open = text ? strchr(text, '(') : NULL, *close = text ? strrchr(text, ')') : NULL;
	unsigned long user, system;

	if (!open || !close)
		return false;
	snprintf(process->comm, sizeof(process->comm), "%.*s", (int)(close - open - 1), open + 1);
	/* proc(5): fields 3 (state), 14 and 15 (utime, stime), 22 (starttime). */
	if (sscanf(close + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %*s %*s %*s %*s %*s %*s %llu",
		   &process->state, &user, &system, &process->started) != 4)
		return false;
	process->used = user + system;
	return true;
}

static ino_t inode_of(const char *folder, const char *name)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

/* \040 and its kind, as proc(5) writes blanks, in place. */
static void unescape(char *text)
{
	char *out = text;

	while (*text) {
		bool octal = text[0] == '\\' && text[1] && text[2] && text[3];
		*out++ = octal ? (char)((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0')) : *text;
		text += octal ? 4 : 1;
	}
	*out = '\0';
}

/* A start from an image gives its overlay the image's path as source; other runtimes have words there. */
static char *image_of(long pid)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("/proc/%ld/mountinfo", pid);
	scoped_free char *text = text_read(AT_FDCWD, path, 4 * 1024 * 1024, NULL, &ignored);
	char source[4096];

	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		const char *type = strstr(line, " - ");
		/* "ID PARENT DEVICE ROOT POINT OPTIONS... - TYPE SOURCE OPTIONS" */
		char point[8];
		if (!type || sscanf(line, "%*s %*s %*s %*s %7s", point) != 1 || strcmp(point, "/"))
			continue;
		if (sscanf(type, " - %*s %4095s", source) != 1 || source[0] != '/' ||
		    (!text_starts(type, " - overlay ") && !text_starts(type, " - fuse")))
			continue;
		unescape(source);
		return text_copy(source, strlen(source));
	}
	return NULL;
}

/* All processes that one may look at and that have another root: of a mount namespace the one that began first. */
void processes_find(struct processes *found)
{
	DIR *stream = opendir("/proc");
	struct stat own, root;

	*found = (struct processes){ 0 };
	if (stat("/", &own))
		own = (struct stat){ 0 };
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		struct process process = { .pid = atol(entry->d_name) };
		scoped_free char *folder = text_format("/proc/%ld", process.pid);
		scoped_free char *link = text_format("%s/root", folder);
		if (process.pid <= 0 || stat(link, &root) || (root.st_dev == own.st_dev && root.st_ino == own.st_ino) ||
		    !read_status(&process, folder))
			continue;
		process.device = root.st_dev;
		process.inode = root.st_ino;
		process.mounts = inode_of(folder, "ns/mnt");
		process.users = inode_of(folder, "ns/user");
		process.image = NULL;
		size_t i = 0;
		while (i < found->n && found->items[i].mounts != process.mounts)
			i++;
		if (i < found->n) {
			struct process *known = &found->items[i];
			if (process.started < known->started || (process.started == known->started && process.pid < known->pid))
				*known = process;
			continue;
		}
		struct process *larger = realloc(found->items, (found->n + 1) * sizeof(*larger));
		if (!larger)
			break;
		found->items = larger;
		found->items[found->n++] = process;
	}
	if (stream)
		closedir(stream);
	for (size_t i = 0; i < found->n; i++)
		found->items[i].image = image_of(found->items[i].pid);
}

void processes_free(struct processes *processes)
{
	for (size_t i = 0; i < processes->n; i++)
		free(processes->items[i].image);
	free(processes->items);
	*processes = (struct processes){ 0 };
}
