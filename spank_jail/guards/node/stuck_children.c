/* SPDX-License-Identifier: Apache-2.0 */
/* Ends, from a thread in slurmd, two kinds of its children: those that wait too long for a user's file or socket, and
 * the slurmstepds whose launch failed. guards.c calls it. */
#define _GNU_SOURCE
#include "stuck_children.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/jail/pid_namespace.h"
#include "native/base/scoped.h"
#include "spank_jail/guards/common/own_thread.h"
#include "spank_jail/guards/common/process_status.h"

/* Opening a file takes milliseconds, seconds on a volume that is slow. */
#define LOOK_EVERY_S 1
#define LONGEST_LOOKS 5
/* A slurmstepd that is told that it failed has nothing left to do. */
#define FAILED_LOOKS 20
/* As many as slurmd has threads to wait for them. */
#define MOST 256
/* Levels of supervisors above slurmd. */
#define MOST_ANCESTORS 32
/* The beginning of its status. */
#define STEPD "Name:\tslurmstepd"

struct errand {
	struct jail_process process;
	int looks;
};

/* What one look has found, and what the look before it had. */
struct looks {
	struct errand now[MOST];
	size_t n;
	const struct looks *before;
};

/* Whether it is a fork of slurmd that has become a user and has executed nothing: prologs and slurmstepd have. */
static bool is_errand(pid_t pid)
{
	char path[64], own[4096], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (!process_read_status(path, text, sizeof(text)) || process_number(text, "\nUid:\t") <= 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	size_t length = process_read(path, text, sizeof(text));
	return length && length == process_read("/proc/self/cmdline", own, sizeof(own)) && !memcmp(text, own, length);
}

static void end(const struct errand *errand)
{
	scoped_fd process = jail_process_open(&errand->process);

	if (process >= 0)
		(void)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

/* Whether slurmd holds an end of a pipe. */
static bool is_held(const struct stat *pipe)
{
	struct dirent *entry;
	struct stat own;
	bool held = false;

	DIR *files = opendir("/proc/self/fd");
	while (files && !held && (entry = readdir(files)))
		held = !fstatat(dirfd(files), entry->d_name, &own, 0) && own.st_dev == pipe->st_dev && own.st_ino == pipe->st_ino;
	if (files)
		closedir(files);
	return held || !files;
}

/* Whether it is a slurmstepd whose launch has failed: its input and output are still the pipes of slurmd's, of which slurmd has
 * no end any more. One whose launch has not has closed them. */
static bool has_failed(pid_t pid)
{
	char path[64], text[4096];
	struct stat input, output;

	/* The links of a user's process lead into his file systems, and may wait for ever. */
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (!process_read_status(path, text, sizeof(text)) || strncmp(text, STEPD, strlen(STEPD)) != 0 || process_is_users(text))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)pid);
	if (stat(path, &input) || !S_ISFIFO(input.st_mode))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fd/1", (int)pid);
	return !stat(path, &output) && S_ISFIFO(output.st_mode) && !is_held(&input) && !is_held(&output);
}

/* Notes that `pid` is still there, and ends it when it has been for more than `longest` looks. */
static void look_at(struct looks *looks, pid_t pid, int longest)
{
	struct errand *errand = &looks->now[looks->n];
	const struct looks *before = looks->before;

	*errand = (struct errand){ .process.number = pid };
	if (jail_process_note(&errand->process))
		return;
	for (size_t i = 0; i < before->n; i++)
		if (before->now[i].process.number == pid && before->now[i].process.start == errand->process.start)
			errand->looks = before->now[i].looks + 1;
	if (errand->looks >= longest)
		end(errand);
	looks->n++;
}

/* The children of each thread of `parent` that are of a kind: proc_pid_task_children(5). */
static void look_at_children(struct looks *looks, pid_t parent, bool (*is_of_kind)(pid_t), int longest)
{
	static char text[65536];
	char path[64];
	struct dirent *entry;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)parent);
	DIR *threads = opendir(path);
	while (threads && (entry = readdir(threads))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)parent, entry->d_name);
		if (entry->d_name[0] == '.' || !process_read(path, text, sizeof(text)))
			continue;
		char *rest = text, *word;
		while (looks->n < MOST && (word = strsep(&rest, " ")))
			if (*word && is_of_kind((pid_t)strtol(word, NULL, 10)))
				look_at(looks, (pid_t)strtol(word, NULL, 10), longest);
	}
	if (threads)
		closedir(threads);
}

/* -1 when there is no such process. */
static pid_t parent_of(pid_t pid)
{
	char path[64], text[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return process_read(path, text, sizeof(text)) ? (pid_t)process_number(text, "\nPPid:\t") : -1;
}

/* slurmstepds are children of no slurmd, but of what reaps orphans above it. */
static void look(struct looks *looks)
{
	pid_t ancestor = getpid();

	looks->n = 0;
	look_at_children(looks, ancestor, is_errand, LONGEST_LOOKS);
	for (int i = 0; i < MOST_ANCESTORS && (ancestor = parent_of(ancestor)) > 0; i++)
		look_at_children(looks, ancestor, has_failed, FAILED_LOOKS);
}

static void *watch(void *unused)
{
	static struct looks seen[2] = { { .before = &seen[1] }, { .before = &seen[0] } };

	(void)unused;
	for (int turn = 0;; turn = !turn) {
		sleep(LOOK_EVERY_S);
		look(&seen[turn]);
	}
	return NULL;
}

int jail_stuck_children_watch(struct jail_error *err)
{
	static bool watched;

	if (watched)
		return 0;
	int number = jail_own_thread_start(watch, NULL);
	if (number)
		return jail_fail(err, "pthread_create", number, "cannot watch over what slurmd forks");
	watched = true;
	return 0;
}
