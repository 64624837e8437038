/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps users from hiding processes from the end of their step (proctrack/linuxproc). guards.c calls it. */
#define _GNU_SOURCE
#include "process_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "imports.h"
#include "process_status.h"
#include "stuck.h"

#define SPARED "slurmstepd"
/* Of proc_pid_stat(5), counted from the name, which is field 2. */
#define NAME_TO_THREADS 18
/* The kernel gives out numbers below 2^22. */
#define MOST_DIGITS 7

/* Whose step it is. */
static uid_t user;

static bool is_users(pid_t pid)
{
	char path[32], status[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return process_read(path, status, sizeof(status)) && process_is_users(status);
}

static pid_t tracer_of(const char *status_path)
{
	char status[4096];

	return process_read(status_path, status, sizeof(status)) ? (pid_t)process_number(status, "\nTracerPid:\t") : 0;
}

static void end_tracer(pid_t pid)
{
	/* First, so that the number cannot become another's. */
	scoped_fd process = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	if (process >= 0 && is_users(pid))
		(void)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

/* Of the process and its threads; with `end`, they get SIGKILL. Returns whether there are any. */
static bool find_tracers(pid_t pid, bool end)
{
	char path[64];
	struct dirent *entry;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	while (threads && (entry = readdir(threads)) && (end || !found)) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/status", (int)pid, entry->d_name);
		pid_t tracer = entry->d_name[0] == '.' ? 0 : tracer_of(path);
		found |= tracer > 0;
		if (end && tracer > 0)
			end_tracer(tracer);
	}
	if (threads)
		closedir(threads);
	return found;
}

static pid_t number_at(const char *text, const char *end)
{
	char digits[MOST_DIGITS + 1] = "";
	size_t n = (size_t)(end - text);

	if (!n || n > MOST_DIGITS)
		return -1;
	memcpy(digits, text, n);
	return strspn(digits, "0123456789") == n ? (pid_t)strtol(digits, NULL, 10) : -1;
}

static long threads_of(const char *text, const char *end)
{
	char rest[1024] = "";
	const char *field = rest;

	memcpy(rest, text, (size_t)(end - text) < sizeof(rest) ? (size_t)(end - text) : sizeof(rest) - 1);
	for (int i = 0; field && i < NAME_TO_THREADS; i++)
		field = strchr(field + 1, ' ');
	return field ? strtol(field, NULL, 10) : 0;
}

void jail_process_tree_correct(char *text, size_t size)
{
	char *first = memchr(text, '(', size), *last = memrchr(text, ')', size), *end = text + size;
	pid_t pid = first && first > text && first[-1] == ' ' ? number_at(text, first - 1) : -1;

	if (pid < 0 || !last || last < first || last + 2 >= end)
		return;
	for (char *one = first + 1; one < last; one++)
		if (isspace((unsigned char)*one) || *one == '(' || *one == ')')
			*one = '_';
	if ((size_t)(last - first - 1) == strlen(SPARED) && !memcmp(first + 1, SPARED, strlen(SPARED)) && is_users(pid))
		first[1] = '_';
	/* A leader that ended before its threads, or whose death a tracer keeps to itself. */
	if (last[2] == 'Z' && (threads_of(last, end) > 1 || find_tracers(pid, false)))
		last[2] = 'S';
}

/* In place of read(2) in the plugin, which reads stat files, and command lines that it compares as a whole. */
static ssize_t read_corrected(int fd, void *buffer, size_t size)
{
	ssize_t got = read(fd, buffer, size);

	if (got > 0)
		jail_process_tree_correct(buffer, (size_t)got);
	return got;
}

static bool is_dead(pid_t pid)
{
	char path[32], text[1024];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	const char *name = process_read(path, text, sizeof(text)) ? strrchr(text, ')') : NULL;
	return name && name[1] == ' ' && name[2] == 'Z';
}

/* In place of kill(2) in the plugin. Slurm sends SIGKILL again as long as the process is there. */
static int end_process(pid_t pid, int signal)
{
	if (pid > 0 && signal == SIGKILL && is_dead(pid))
		(void)find_tracers(pid, true);
	else if (pid > 0 && signal == SIGKILL)
		jail_stuck_release(pid, user);
	return kill(pid, signal);
}

int jail_process_tree_guard(uid_t owner, struct jail_error *err)
{
	const struct link_map *plugin = jail_imports_library("proctrack_linuxproc");

	user = owner;
	if (!plugin)
		return 0;
	int missing = jail_imports_replace(plugin, "read", (void *)read_corrected, err);
	if (!missing)
		missing = jail_imports_replace(plugin, "kill", (void *)end_process, err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this proctrack_linuxproc finds processes in an unknown way: a user's that "
						  "is called " SPARED " outlives its step, and the node is drained");
}
