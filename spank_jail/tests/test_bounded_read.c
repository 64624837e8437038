/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that files are read by a child process, which is killed when a read waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/text.h"
#include "native/testing/check.h"
#include "spank_jail/guards/step/bounded_read.h"

static char text[65536];

static ssize_t content(const char *path)
{
	scoped_fd fd = bounded_read(path);
	ssize_t got, length = 0;

	while (fd >= 0 && (got = read(fd, text + length, sizeof(text) - 1 - (size_t)length)) > 0)
		length += got;
	text[length] = '\0';
	return fd < 0 ? -1 : length;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(void)
{
	char folder[] = "/var/tmp/bounded-read-XXXXXX", own[64];
	CHECK(mkdtemp(folder));
	scoped_free char *fifo = text_format("%s/fifo", folder), *large = text_format("%s/large", folder);

	snprintf(own, sizeof(own), "/proc/%d/stat", (int)getpid());
	CHECK(content(own) > 0 && atoi(text) == (int)getpid());
	CHECK(content("/proc/4999999/stat") == -1 && content(folder) == -1);
	scoped_fd file = open(large, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	memset(text, 'x', sizeof(text));
	CHECK(write(file, text, 20000) == 20000 && content(large) == 20000);

	/* Who opens a FIFO waits, as who reads of a process that keeps its locks. */
	CHECK(!mkfifo(fifo, 0600));
	double begun = seconds();
	CHECK(content(fifo) == -1 && seconds() - begun < 5);
	CHECK(content(own) > 0 && atoi(text) == (int)getpid());
	/* Nobody waits for many. */
	CHECK(content(fifo) == -1 && content(fifo) == -1);
	begun = seconds();
	for (int i = 0; i < 100; i++)
		CHECK(content(fifo) == -1);
	CHECK(content(own) == -1 && seconds() - begun < 0.4);
	/* What read has ended, and nobody else is asked to wait for it. */
	CHECK(waitpid(-1, NULL, __WALL | WNOHANG) <= 0);
	CHECK(!unlink(fifo) && !unlink(large) && !rmdir(folder));
	return check_result("bounded_read");
}
