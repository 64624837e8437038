/* SPDX-License-Identifier: Apache-2.0 */
/* Ends children of slurmd that wait for a user's file or socket. guards.c calls it. */
#define _GNU_SOURCE
#include "errands.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/jail/pid.h"
#include "native/base/scoped.h"

/* Opening a file takes milliseconds, seconds on a volume that is slow. */
#define LOOK_EVERY_S 1
#define LONGEST_LOOKS 5
/* As many as slurmd has threads to wait for them. */
#define MOST 256

struct errand {
	struct jail_process process;
	int looks;
};

static size_t read_file(const char *path, char *text, size_t size)
{
	scoped_fd file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = file < 0 ? -1 : read(file, text, size - 1);

	text[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

/* Whether it is a fork of slurmd that has become a user and has executed nothing: prologs and slurmstepd have. */
static bool is_errand(pid_t pid)
{
	char path[64], own[4096], text[4096];
	unsigned uid = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	(void)read_file(path, text, sizeof(text));
	const char *uids = strstr(text, "\nUid:");
	if (!uids || sscanf(uids, "\nUid: %u", &uid) != 1 || !uid)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	size_t length = read_file(path, text, sizeof(text));
	return length && length == read_file("/proc/self/cmdline", own, sizeof(own)) && !memcmp(text, own, length);
}

static void end(const struct errand *errand)
{
	scoped_fd process = jail_process_open(&errand->process);

	if (process >= 0)
		(void)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

/* Notes that `pid` is still there, and ends it when it has been for too long. */
static void look_at(struct errand *now, size_t *n, const struct errand *before, size_t n_before, pid_t pid)
{
	struct errand *errand = &now[*n];

	*errand = (struct errand){ .process.number = pid };
	if (jail_process_note(&errand->process))
		return;
	for (size_t i = 0; i < n_before; i++)
		if (before[i].process.number == pid && before[i].process.start == errand->process.start)
			errand->looks = before[i].looks + 1;
	if (errand->looks >= LONGEST_LOOKS)
		end(errand);
	(*n)++;
}

/* The children of each thread: proc_pid_task_children(5). */
static size_t look(struct errand *now, const struct errand *before, size_t n_before)
{
	char path[64], text[8192];
	struct dirent *entry;
	size_t n = 0;

	DIR *threads = opendir("/proc/self/task");
	while (threads && (entry = readdir(threads))) {
		snprintf(path, sizeof(path), "/proc/self/task/%.16s/children", entry->d_name);
		if (entry->d_name[0] == '.' || !read_file(path, text, sizeof(text)))
			continue;
		char *rest = text, *word;
		while (n < MOST && (word = strsep(&rest, " ")))
			if (*word && is_errand((pid_t)strtol(word, NULL, 10)))
				look_at(now, &n, before, n_before, (pid_t)strtol(word, NULL, 10));
	}
	if (threads)
		closedir(threads);
	return n;
}

static void *watch(void *unused)
{
	static struct errand seen[2][MOST];
	size_t n = 0;

	(void)unused;
	for (int turn = 0;; turn = !turn) {
		sleep(LOOK_EVERY_S);
		n = look(seen[turn], seen[!turn], n);
	}
	return NULL;
}

int jail_errands_watch(struct jail_error *err)
{
	static bool watched;
	sigset_t all, before;
	pthread_t thread;

	if (watched)
		return 0;
	/* slurmd's signals go to slurmd's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int number = pthread_create(&thread, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (number)
		return jail_fail(err, "pthread_create", number, "cannot watch over what slurmd forks for users");
	(void)pthread_detach(thread);
	watched = true;
	return 0;
}
