/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on the node: tells what is opened and made there. By inode, so by whatever name and from whatever root. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "attack.h"

static void tell(const struct inotify_event *event, const char *path)
{
	printf("%s %s%s%s\n", event->mask & IN_CREATE ? "made" : "opened", path, event->len ? "/" : "",
	       event->len ? event->name : "");
}

_Noreturn void watch(int count, char **paths)
{
	char buffer[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
	int fd = inotify_init1(IN_CLOEXEC), first = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 0; i < count; i++) {
		int number = fd < 0 ? -1 : inotify_add_watch(fd, paths[i], IN_OPEN | IN_CREATE | IN_MOVED_TO);
		if (number < 0)
			broken("watch %s", paths[i]);
		if (!i)
			first = number;
	}
	for (;;) {
		ssize_t length = read(fd, buffer, sizeof(buffer));
		if (length <= 0)
			broken("read what is watched");
		for (char *at = buffer; at < buffer + length;) {
			const struct inotify_event *event = (const void *)at;
			/* A directory that is listed is no file that was opened. */
			if (!(event->mask & IN_ISDIR && event->mask & IN_OPEN))
				tell(event, event->wd >= first ? paths[event->wd - first] : "?");
			at += sizeof(*event) + event->len;
		}
	}
}
