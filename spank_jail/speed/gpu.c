/* SPDX-License-Identifier: Apache-2.0 */
/* Runs gpu-speed, the program that measures a node's GPUs. node_speed.c calls it.
 *
 * gpu-speed is in the jail and uses the jail's libraries, which users may change, so it runs as nobody.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "speed.h"

#define NOBODY 65534
/* A line for each GPU. */
#define MOST_OUTPUT 32768
#define STATUS_WRONG 1
#define STATUS_NO_PROGRAM 127
#define STATUS_NO_NOBODY 126

static void become(const char *program, int output)
{
	char *const words[] = { (char *)(uintptr_t)program, NULL };
	int null = open("/dev/null", O_RDWR);

	setsid();
	dup2(null, 0);
	dup2(output, 1);
	dup2(null, 2);
	/* The tasks' connections are among them. */
	if (close_range(3, ~0u, 0) || (!geteuid() && (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
						      setresuid(NOBODY, NOBODY, NOBODY))) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(STATUS_NO_NOBODY);
	execv(program, words);
	_exit(STATUS_NO_PROGRAM);
}

/* All that it says until it ends; what is left of it at `until` is ended. Returns whether it ended by itself. */
static bool hear(int from, pid_t pid, double until, char *text)
{
	size_t length = 0;
	ssize_t got;
	bool ended = false;

	for (double left; !ended && (left = until - speed_now()) > 0;) {
		char part[512];
		struct pollfd ready = { .fd = from, .events = POLLIN };
		if (poll(&ready, 1, (int)(left * 1e3) + 1) <= 0)
			continue;
		got = read(from, part, sizeof(part));
		ended = !got || (got < 0 && errno != EINTR);
		for (ssize_t i = 0; i < got && length < MOST_OUTPUT - 1; i++)
			text[length++] = part[i];
	}
	text[length] = 0;
	if (!ended)
		kill(-pid, SIGKILL);
	return ended;
}

/* Of lines "gpu 0 NAME ... multiply 19000 GFLOP/s": the slowest; -1: there is none. */
static double slowest(const char *text)
{
	static const char word[] = " multiply ";
	double least = -1;

	for (const char *found = text; (found = strstr(found, word));) {
		double value = atof(found += sizeof(word) - 1);
		least = least < 0 || value < least ? value : least;
	}
	return least;
}

double speed_gpu(const char *program, double seconds, char *why, size_t size)
{
	double until = speed_now() + seconds, value = -1;
	char *text = malloc(MOST_OUTPUT);
	int pipes[2], status = 0;
	pid_t pid = -1;

	if (!text || pipe2(pipes, O_CLOEXEC)) {
		snprintf(why, size, "%s", strerrordesc_np(errno));
		free(text);
		return -1;
	}
	if (!(pid = fork()))
		become(program, pipes[1]);
	close(pipes[1]);
	bool ended = pid > 0 && hear(pipes[0], pid, until, text);
	close(pipes[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	int code = ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	if (code == 0)
		value = slowest(text);
	if (pid < 0)
		snprintf(why, size, "no process for %s can be made", program);
	else if (!ended)
		snprintf(why, size, "%s did not end within %.0f seconds", program, seconds);
	else if (code == STATUS_NO_PROGRAM)
		snprintf(why, size, "the jail has no %s; jail-devel of a CUDA variant does", program);
	else if (code == STATUS_NO_NOBODY)
		snprintf(why, size, "%s is not run, for its user cannot be nobody here", program);
	else if (value < 0)
		snprintf(why, size, "%.*s", *text ? (int)strcspn(text, "\n") : 60, *text ? text : "gpu-speed ended without a word");
	errno = code == STATUS_WRONG ? EBADMSG : EIO;
	free(text);
	return value;
}
