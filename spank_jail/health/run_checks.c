/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the checks side by side, and makes a result of each program's exit status. node_health.c calls it.
 *
 * A check that hangs in the kernel cannot be killed. It is left alone, and not started again while it is there:
 * otherwise each run would leave one more.
 */
#define _GNU_SOURCE
#include "run_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "native/base/trust.h"

/* At a time: a turn must not take all processors of a node from its jobs. */
#define SIDE_BY_SIDE 4
/* After SIGKILL. */
#define END_MS 300
/* Enters the jail; this status of it: there is none. */
#define JAIL_ENTER "/usr/sbin/jail-enter"
#define STATUS_NO_JAIL 125
#define MOST_SCRIPT (64 * 1024)

struct running {
	const struct health_check *check;
	struct health_result *result;
	pid_t pid;
	int process, output;
	long long until;
	bool killed;
	size_t length;
	char text[HEALTH_TEXT_SIZE];
};

static void conclude(struct health_result *result, enum health_verdict verdict, const char *text)
{
	result->verdict = verdict;
	snprintf(result->text, sizeof(result->text), "%s", text);
	result->text[strcspn(result->text, "\r\n")] = 0;
	jail_one_line(result->text);
	/* It stands between quotes where a node registers with a reason. */
	for (char *quote = result->text; (quote = strchr(quote, '"'));)
		*quote = '\'';
}

/* Field 22 of proc_pid_stat(5): tells a process from one with its number that came later. 0: there is none. */
static unsigned long long start_time(pid_t pid)
{
	scoped_free char *path = text_format("/proc/%d/stat", pid);
	scoped_fd fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[1024];
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	unsigned long long started = 0;

	if (length <= 0)
		return 0;
	text[length] = 0;
	char *rest = strrchr(text, ')');
	if (rest)
		sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &started);
	return started;
}

static void note_hung(const char *folder, pid_t pid)
{
	scoped_free char *path = text_format("%s/hung", folder), *text = text_format("%d %llu\n", pid, start_time(pid));
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd >= 0)
		(void)text_write(fd, text, strlen(text));
}

/* Whether the run of before is still there. */
static bool hangs(const char *folder)
{
	scoped_free char *path = text_format("%s/hung", folder);
	scoped_free char *text = text_read(AT_FDCWD, path, 100, NULL, &(struct jail_error){ 0 });
	unsigned long long started;
	int pid;

	if (!text)
		return false;
	if (sscanf(text, "%d %llu", &pid, &started) == 2 && pid > 0 && started && start_time(pid) == started)
		return true;
	unlink(path);
	return false;
}

/* The words that start it; `name` is CELLBLOCK_NODE=NAME. One that runs in the jail is handed over as a text: the jail shows none of the node's folders of checks.
 * Returns the program, or NULL: it is no script. */
static const char *start_words(const struct health_check *check, const char *name, struct text_list *words)
{
	scoped_free char *script = NULL;

	if (check->user[0]) {
		script = text_read(AT_FDCWD, check->program, MOST_SCRIPT, NULL, &(struct jail_error){ 0 });
		if (!script || !text_starts(script, "#!"))
			return NULL;
		for (const char *const *word = (const char *const[]){ JAIL_ENTER, "--user", check->user, "--chdir", "/", "--", "/usr/bin/env", name,
								      "/bin/sh", "-c", script, NULL }; *word; word++)
			text_list_add(words, *word);
	}
	text_list_add(words, check->name);
	for (size_t i = 0; i < check->arguments.n; i++)
		text_list_add(words, check->arguments.items[i]);
	return check->user[0] ? JAIL_ENTER : check->program;
}

static int spawn(const struct health_check *check, const char *folder, const char *node, int output, pid_t *pid)
{
	scoped_free char *own = text_format("CELLBLOCK_HEALTH_STATE=%s", folder);
	scoped_free char *name = text_format("CELLBLOCK_NODE=%s", node);
	char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin", language[] = "LC_ALL=C";
	char *environment[] = { own, name, path, language, NULL };
	scoped_list words = { 0 };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none;

	const char *program = start_words(check, name, &words);
	if (!program)
		return ENOEXEC;
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, output, 1);
	posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
	int number = posix_spawn(pid, program, &files, &attributes, words.items, environment);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	return number;
}

/* Whether it runs; else it has a verdict. */
static bool start(struct running *run, const char *state, const char *node)
{
	const struct health_check *check = run->check;
	scoped_free char *folder = text_format("%s/%s", state, check->name);
	char text[HEALTH_TEXT_SIZE], line[1400];
	struct jail_error err = { 0 };
	int ends[2];

	if (!check->program) {
		conclude(run->result, HEALTH_COULD_NOT_RUN, "no folder of checks has a program of this name");
		return false;
	}
	/* A folder of root's may hold a user's file, or a link to one. */
	scoped_fd program = jail_open_trusted(check->program, 0, "health check", &err);
	if (program < 0) {
		conclude(run->result, HEALTH_COULD_NOT_RUN, jail_error_format(&err, line, sizeof(line)));
		return false;
	}
	mkdir(folder, 0700);
	if (hangs(folder)) {
		conclude(run->result, HEALTH_COULD_NOT_RUN, "its run of before hangs in the kernel and cannot be ended");
		return false;
	}
	if (pipe2(ends, O_CLOEXEC)) {
		conclude(run->result, HEALTH_COULD_NOT_RUN, "no descriptor can be had");
		return false;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	int number = spawn(check, folder, node, ends[1], &run->pid);
	close(ends[1]);
	if (number) {
		snprintf(text, sizeof(text), "%s cannot be run: %s", check->program, strerrordesc_np(number));
		conclude(run->result, HEALTH_COULD_NOT_RUN, text);
		close(ends[0]);
		return false;
	}
	run->output = ends[0];
	run->process = (int)syscall(SYS_pidfd_open, run->pid, 0);
	run->until = clock_ms() + check->limit_s * 1000LL;
	run->killed = false;
	run->length = 0;
	return true;
}

/* The first bytes; the rest is read so that the check is not held up by it. */
static void read_output(struct running *run)
{
	char part[4096];
	ssize_t got;

	while (run->output >= 0 && (got = read(run->output, part, sizeof(part))) >= 0) {
		/* Nobody writes any more: the process' end is what counts now. */
		if (!got) {
			jail_close(&run->output);
			return;
		}
		size_t room = sizeof(run->text) - 1 - run->length;
		size_t length = (size_t)got < room ? (size_t)got : room;
		memcpy(run->text + run->length, part, length);
		run->length += length;
	}
}

static void judge(struct running *run, int status)
{
	char text[HEALTH_TEXT_SIZE];
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

	read_output(run);
	run->text[run->length] = 0;
	if (run->killed) {
		snprintf(text, sizeof(text), "no end after %u s", run->check->limit_s);
		conclude(run->result, HEALTH_COULD_NOT_RUN, text);
	} else if (run->check->user[0] && code == STATUS_NO_JAIL) {
		conclude(run->result, HEALTH_COULD_NOT_RUN, "the jail cannot be entered; `jail-enter --check` says why");
	} else if (code == 0) {
		conclude(run->result, HEALTH_PASSED, run->text);
	} else if (code == 1 && run->text[strspn(run->text, " \t\r\n")]) {
		conclude(run->result, HEALTH_FAILED, run->text);
	} else if (code == 1) {
		conclude(run->result, HEALTH_COULD_NOT_RUN, "it failed and gave no reason");
	} else {
		snprintf(text, sizeof(text), code < 0 ? "signal %d ended it" : "exit status %d", code < 0 ? WTERMSIG(status) : code);
		conclude(run->result, HEALTH_COULD_NOT_RUN, run->length ? run->text : text);
	}
}

static void forget(struct running *run)
{
	if (run->process >= 0)
		close(run->process);
	jail_close(&run->output);
	run->pid = 0;
}

static void watch_check(struct running *run, const char *state)
{
	int status;

	read_output(run);
	if (waitpid(run->pid, &status, WNOHANG) == run->pid) {
		/* What it left behind. */
		kill(-run->pid, SIGKILL);
		judge(run, status);
		forget(run);
	} else if (clock_ms() >= run->until && !run->killed) {
		kill(-run->pid, SIGKILL);
		run->killed = true;
		run->until = clock_ms() + END_MS;
	} else if (clock_ms() >= run->until) {
		scoped_free char *folder = text_format("%s/%s", state, run->check->name);
		char text[HEALTH_TEXT_SIZE];
		note_hung(folder, run->pid);
		snprintf(text, sizeof(text), "no end after %u s, and it cannot be ended", run->check->limit_s);
		conclude(run->result, HEALTH_COULD_NOT_RUN, text);
		forget(run);
	}
}

static void await_any(struct running *runs)
{
	struct pollfd ready[2 * SIDE_BY_SIDE];
	long long until = 0;
	nfds_t n = 0;

	for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
		if (!runs[i].pid)
			continue;
		if (!until || runs[i].until < until)
			until = runs[i].until;
		/* Negative ones are passed over. */
		ready[n++] = (struct pollfd){ .fd = runs[i].process, .events = POLLIN };
		ready[n++] = (struct pollfd){ .fd = runs[i].output, .events = POLLIN };
	}
	long long left = until - clock_ms();
	poll(ready, n, left < 0 ? 0 : left > 200 ? 200 : (int)left);
}

void health_run(const struct health_check *const *checks, size_t n, const char *state, const char *node,
		struct health_result *results)
{
	struct running runs[SIDE_BY_SIDE] = { 0 };
	size_t next = 0, active = 0;

	while (next < n || active) {
		active = 0;
		for (size_t i = 0; i < SIDE_BY_SIDE; i++) {
			while (!runs[i].pid && next < n) {
				runs[i] = (struct running){ .check = checks[next], .result = &results[next] };
				if (!start(&runs[i], state, node))
					runs[i].pid = 0;
				next++;
			}
			active += runs[i].pid != 0;
		}
		if (!active)
			continue;
		await_any(runs);
		for (size_t i = 0; i < SIDE_BY_SIDE; i++)
			if (runs[i].pid)
				watch_check(&runs[i], state);
	}
}
