/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that all quick checks of a node share: reporting the result, reading arguments, remembering values until
 * the next run, limiting time. All files of this folder call them. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/text.h"

#define FACTS "/run/cellblock/node-facts"
#define MOST_BYTES (1024 * 1024)

char **check_arguments;

static int say(int status, const char *format, va_list values)
{
	vprintf(format, values);
	putchar('\n');
	return status;
}

int check_failed(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	int status = say(CHECK_FAILED, format, values);
	va_end(values);
	return status;
}

int check_could_not_run(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	int status = say(CHECK_COULD_NOT_RUN, format, values);
	va_end(values);
	return status;
}

const char *check_word(const char *key, const char *otherwise)
{
	size_t length = strlen(key);

	for (char **word = check_arguments; *word; word++)
		if (!strncmp(*word, key, length) && (*word)[length] == '=')
			return *word + length + 1;
	return otherwise;
}

uint64_t check_number(const char *key, uint64_t otherwise)
{
	const char *word = check_word(key, NULL);
	char *end;

	if (!word)
		return otherwise;
	errno = 0;
	uint64_t number = strtoull(word, &end, 10);
	if (!errno && end != word && !*end && *word != '-')
		return number;
	check_could_not_run("%s=%s is no number", key, word);
	exit(CHECK_COULD_NOT_RUN);
}

const char *check_node(void)
{
	const char *name = getenv("CELLBLOCK_NODE");

	return name ? name : "localhost";
}

char *check_read(const char *path)
{
	struct jail_error err = { 0 };
	char *text = text_read(AT_FDCWD, path, MOST_BYTES, NULL, &err);

	if (!text)
		errno = err.number ? err.number : EIO;
	return text;
}

char *check_fact(const char *key)
{
	scoped_free char *text = check_read(check_word("facts", FACTS));
	size_t length = strlen(key);
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n")))
		if (!strncmp(line, key, length) && line[length] == '=')
			return text_copy(line + length + 1, strlen(line + length + 1));
	return NULL;
}

char *check_path(const char *name)
{
	const char *folder = getenv("CELLBLOCK_HEALTH_STATE");

	return folder ? text_format("%s/%s", folder, name) : NULL;
}

char *check_recall(const char *name)
{
	scoped_free char *path = check_path(name);

	return path ? check_read(path) : NULL;
}

bool check_is_fresh(const char *name, uint64_t apart)
{
	scoped_free char *path = check_path(name);
	struct stat st;

	return path && !stat(path, &st) && st.st_mtime <= time(NULL) && (uint64_t)(time(NULL) - st.st_mtime) < apart;
}

void check_remember(const char *name, const char *text)
{
	scoped_free char *path = check_path(name);
	scoped_fd fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;

	if (!path || (fd >= 0 && !text_write(fd, text, strlen(text))))
		return;
	check_could_not_run("%s: %s", path, strerrordesc_np(errno));
	fflush(stdout);
	_exit(CHECK_COULD_NOT_RUN);
}

/* Until its output ends, or `seconds` are over: whether it ended. */
static bool copy_output(int from, unsigned seconds)
{
	struct pollfd ready = { .fd = from, .events = POLLIN };
	time_t until = time(NULL) + seconds + 1;
	char part[512];
	ssize_t got;

	while (poll(&ready, 1, (int)seconds * 1000) > 0 && time(NULL) <= until) {
		if ((got = read(from, part, sizeof(part))) <= 0)
			return true;
		fwrite(part, 1, (size_t)got, stdout);
	}
	return false;
}

/* A look that hangs keeps the lock. One of a turn, or of another job's prolog, has it for a moment only. */
static bool lock_within(int fd, unsigned seconds)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	time_t until = time(NULL) + seconds;

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (time(NULL) > until)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

int check_bounded(int (*work)(void), const char *what, unsigned seconds)
{
	scoped_free char *path = check_path("prober");
	scoped_fd held = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
	int ends[2], status;

	if (held >= 0 && !lock_within(held, seconds))
		return check_failed("%s does not answer: a look at it of before still hangs", what);
	if (pipe2(ends, O_CLOEXEC))
		return check_could_not_run("pipe2: %s", strerrordesc_np(errno));
	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		return check_could_not_run("fork: %s", strerrordesc_np(errno));
	if (!pid) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		status = work();
		_exit(fflush(stdout) ? CHECK_COULD_NOT_RUN : status);
	}
	close(ends[1]);
	bool ended = copy_output(ends[0], seconds);
	close(ends[0]);
	if (!ended) {
		kill(pid, SIGKILL);
		return check_failed("%s does not answer for %u s", what, seconds);
	}
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return check_could_not_run("the look at %s was ended", what);
	return WEXITSTATUS(status);
}

static const char *alarm_reason;

static void fail_now(int signal)
{
	(void)signal;
	(void)!write(STDOUT_FILENO, alarm_reason, strlen(alarm_reason));
	_exit(CHECK_FAILED);
}

void check_fails_after(unsigned seconds, const char *reason)
{
	alarm_reason = reason;
	signal(SIGALRM, fail_now);
	alarm(seconds);
}

int check_has_jobs(void)
{
	scoped_free char *sockets = check_read(check_word("sockets", "/proc/net/unix"));
	/* NODE_JOB.STEP in slurmd's spool. */
	scoped_free char *start = text_format("%s/%s_", check_word("spool", "/var/spool/slurmd"), check_node());

	if (!sockets)
		return -1;
	for (const char *found = sockets; (found = strstr(found, start)); found++)
		if (found[strlen(start)] >= '0' && found[strlen(start)] <= '9')
			return 1;
	return 0;
}
