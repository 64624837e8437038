/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from /proc what state a process is in, whose it is and whether a thread waits. accounting.c,
 * stuck_children.c, fuse_connections.c, process_tree.c and stuck_processes.c call it. */
#define _GNU_SOURCE
#include "process_status.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"

#define GROUPS "Groups:"

size_t process_read(const char *path, char *text, size_t size)
{
	scoped_fd file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = file < 0 ? -1 : read(file, text, size - 1);

	text[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

size_t process_read_status_fd(int file, char *text, size_t size)
{
	char part[4096];
	size_t length = 0, line = 0;
	bool skips = false;
	ssize_t got = 0;

	while (length + 1 < size && (got = read(file, part, sizeof(part))) > 0)
		for (const char *at = part, *end = part + got; at < end && length + 1 < size;) {
			const char *feed = memchr(at, '\n', (size_t)(end - at));
			size_t count = (size_t)((feed ? feed + 1 : end) - at);

			count = skips ? 0 : count < size - 1 - length ? count : size - 1 - length;
			memcpy(text + length, at, count);
			length += count;
			if (!skips && length - line >= strlen(GROUPS) && !memcmp(text + line, GROUPS, strlen(GROUPS))) {
				length = line + strlen(GROUPS);
				skips = true;
			}
			if (feed && skips && length + 1 < size)
				text[length++] = '\n';
			if (feed) {
				line = length;
				skips = false;
			}
			at = feed ? feed + 1 : end;
		}
	text[length] = '\0';
	return length;
}

size_t process_read_status(const char *path, char *text, size_t size)
{
	scoped_fd file = open(path, O_RDONLY | O_CLOEXEC);

	text[0] = '\0';
	return file < 0 ? 0 : process_read_status_fd(file, text, size);
}

long process_number(const char *status, const char *label)
{
	const char *line = strstr(status, label);

	return line ? strtol(line + strlen(label), NULL, 10) : -1;
}

/* How many numbers the process has, one for each PID namespace that it is seen in, and the last of them. */
static int count_numbers(const char *status, long *last)
{
	const char *numbers = strstr(status, "\nNSpid:");
	char *rest = numbers ? (char *)numbers + strlen("\nNSpid:") : NULL;
	int count = 0;

	*last = 0;
	for (; rest && *rest == '\t'; count++)
		*last = strtol(rest + 1, &rest, 10);
	return count;
}

bool process_is_users(const char *status)
{
	long last;
	int numbers = count_numbers(status, &last);

	return process_number(status, "\nUid:\t") > 0 || numbers > 2 || (numbers == 2 && last != 1);
}

bool process_thread_waits(const char *thread)
{
	char path[80], text[1024];

	snprintf(path, sizeof(path), "%s/status", thread);
	if (!process_read_status(path, text, sizeof(text)))
		return false;
	return strstr(text, "\nState:\tD") || strstr(text, "\nState:\tS") || strstr(text, "\nState:\tt");
}
