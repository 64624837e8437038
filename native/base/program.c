/* SPDX-License-Identifier: Apache-2.0 */
/* Finds, runs and waits for other programs. enroot/, other libraries in native/ and pyxis/ call it. */
#define _GNU_SOURCE
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "scoped.h"

char *program_find(const char *name)
{
	const char *own = getenv("PATH");
	scoped_free char *paths = text_format("%s:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", own ? own : "");
	char *rest = paths, *folder;

	while ((folder = strsep(&rest, ":"))) {
		if (*folder != '/')
			continue;
		char *path = text_format("%s/%s", folder, name);
		if (!access(path, X_OK))
			return path;
		free(path);
	}
	return NULL;
}

/* A script whose first line names no program: bash, which ran it for others, takes it for its own. */
static void run_by_bash(const struct program *program, const char *path)
{
	scoped_list words = { 0 };
	scoped_free char *bash = program_find("bash");

	text_list_add(&words, "bash");
	text_list_add(&words, path);
	for (char *const *word = program->arguments + 1; *word; word++)
		text_list_add(&words, *word);
	if (bash)
		execve(bash, words.items, program->environment ? program->environment : environ);
}

static void child(const struct program *program, const char *path, int out, pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(126);
	if (program->quiet)
		out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (out >= 0)
		dup2(out, STDOUT_FILENO);
	if (program->input > 0)
		dup2(program->input, STDIN_FILENO);
	if (program->prepare && !program->prepare())
		_exit(PROGRAM_NOT_PREPARED);
	execve(path, program->arguments, program->environment ? program->environment : environ);
	if (errno == ENOEXEC)
		run_by_bash(program, path);
	_exit(127);
}

/* Takes its output up to the end: 0, or why it is not taken any more. `until`: milliseconds of the clock; 0: for ever. */
static int take_output(const struct program *program, int from, long long until)
{
	char part[4096];

	for (;;) {
		struct pollfd ready = { .fd = from, .events = POLLIN };
		long long left = until ? until - clock_ms() : -1;

		if (until && left <= 0)
			return ETIMEDOUT;
		int got = poll(&ready, 1, left > INT_MAX ? INT_MAX : (int)left);
		if (!got)
			continue;
		ssize_t length = got > 0 ? read(from, part, sizeof(part)) : -1;
		if (length < 0 && errno == EINTR)
			continue;
		if (length <= 0)
			return 0;
		text_append(program->output, part, (size_t)length);
		if (program->most && program->output->length > program->most)
			return EFBIG;
	}
}

/* Its end, which may come later than that of its output: 0, ETIMEDOUT, or another errno. */
static int await(pid_t pid, int *status, long long until)
{
	struct timespec pause = { .tv_nsec = 500000 };

	for (;;) {
		pid_t ended = waitpid(pid, status, until ? WNOHANG : 0);
		if (ended == pid)
			return 0;
		if (ended < 0 && errno != EINTR)
			return errno;
		if (!until)
			continue;
		if (clock_ms() >= until)
			return ETIMEDOUT;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 50000000)
			pause.tv_nsec *= 2;
	}
}

int program_run(const struct program *program, struct jail_error *err)
{
	const char *name = program->arguments[0];
	scoped_free char *path = strchr(name, '/') ? text_copy(name, strlen(name)) : program_find(name);
	int ends[2] = { -1, -1 }, status, why = 0;
	long long until = program->seconds ? clock_ms() + program->seconds * 1000LL : 0;

	if (!path)
		return jail_fail(err, NULL, ENOENT, "the program %s is not installed, or not in PATH; install it (`enroot info` shows what enroot itself needs)", name);
	if (program->output && pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot run %s", name);
	pid_t self = getpid(), pid = fork();
	if (!pid)
		child(program, path, ends[1], self);
	int number = errno;
	jail_close(&ends[1]);
	if (pid > 0 && ends[0] >= 0)
		why = take_output(program, ends[0], until);
	jail_close(&ends[0]);
	if (pid < 0)
		return jail_fail(err, "fork", number, "cannot run %s", name);
	if (!why)
		why = await(pid, &status, until);
	if (why == ETIMEDOUT || why == EFBIG) {
		kill(pid, SIGKILL);
		await(pid, &status, 0);
		if (why == EFBIG)
			jail_fail(err, NULL, 0, "%s printed more than %zu bytes, and was ended", name, program->most);
		else
			jail_fail(err, NULL, 0, "%s had no end after %u s, and was ended", name, program->seconds);
		err->number = why;
		return -1;
	}
	if (why)
		return jail_fail(err, "waitpid", why, "lost %s", name);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
