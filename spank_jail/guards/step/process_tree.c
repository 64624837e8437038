/* SPDX-License-Identifier: Apache-2.0 */
/* Makes Slurm's plugin proctrack/linuxproc find all processes of a step at its end, also those that users disguise.
 * guards.c calls it. */
#define _GNU_SOURCE
#include "process_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/process_status.h"
#include "stuck_processes.h"

#define SPARED "slurmstepd"
/* Of proc_pid_status(5). */
#define NAME "Name:\t"
#define STATE "\nState:\t"

/* Whose step it is. */
static uid_t step_user;
/* What the plugin opened last, in this thread, if that was a stat file. */
static _Thread_local int status_file = -1;

static bool is_users(pid_t pid)
{
	char path[32], status[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return process_read_status(path, status, sizeof(status)) && process_is_users(status);
}

static pid_t tracer_of(const char *status_path)
{
	char status[4096];

	return process_read_status(status_path, status, sizeof(status)) ? (pid_t)process_number(status, "\nTracerPid:\t") : 0;
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

static char state_of(const char *status)
{
	const char *line = strstr(status, STATE);

	return line ? line[strlen(STATE)] : '\0';
}

size_t jail_process_tree_stat(const char *status, char *text, size_t size)
{
	pid_t pid = (pid_t)process_number(status, "\nPid:\t");
	const char *end = strchr(status, '\n');
	char state = state_of(status), name[64];

	if (pid < 0 || !state || !end || strncmp(status, NAME, strlen(NAME)) != 0)
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)(end - status - (ptrdiff_t)strlen(NAME)), status + strlen(NAME));
	for (char *one = name; *one; one++)
		if (isspace((unsigned char)*one) || *one == '(' || *one == ')')
			*one = '_';
	if (!strcmp(name, SPARED) && process_is_users(status))
		name[0] = '_';
	/* A leader that ended before its threads, or whose death a tracer keeps to itself. */
	if (state == 'Z' && (process_number(status, "\nThreads:\t") > 1 || find_tracers(pid, false)))
		state = 'S';
	int length = snprintf(text, size, "%d (%s) %c %ld", (int)pid, name, state, process_number(status, "\nPPid:\t"));
	return length < (int)size ? (size_t)length : 0;
}

/* In place of open(2) in the plugin, which reads stat files, and command lines to find a slurmstepd. A process of a user's is
 * none; and of both the reader waits for locks that a user's process may keep. */
static int open_status(const char *path, int flags, ...)
{
	char other[32], status[4096];
	const char *slash = strrchr(path, '/');

	status_file = -1;
	if (!slash || slash - path > 16 || strncmp(path, "/proc/", strlen("/proc/")) != 0)
		return open(path, flags & ~O_CREAT);
	snprintf(other, sizeof(other), "%.*s/status", (int)(slash - path), path);
	if (!strcmp(slash, "/stat"))
		return status_file = open(other, O_RDONLY | O_CLOEXEC);
	if (!strcmp(slash, "/cmdline") && process_read_status(other, status, sizeof(status)) && process_is_users(status)) {
		errno = EACCES;
		return -1;
	}
	return open(path, flags & ~O_CREAT);
}

/* In place of read(2) in the plugin. */
static ssize_t read_status(int fd, void *buffer, size_t size)
{
	char status[4096];

	if (fd < 0 || fd != status_file)
		return read(fd, buffer, size);
	return process_read_status_fd(fd, status, sizeof(status)) ? (ssize_t)jail_process_tree_stat(status, buffer, size) : 0;
}

static bool is_dead(pid_t pid)
{
	char path[32], status[1024];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	return process_read_status(path, status, sizeof(status)) && state_of(status) == 'Z';
}

/* In place of kill(2) in the plugin. Slurm sends SIGKILL again as long as the process is there. */
static int end_process(pid_t pid, int signal)
{
	if (pid > 0 && signal == SIGKILL) {
		/* Of one whose first thread is dead another may wait; and a tracer may have stopped one on its way out. */
		if (jail_stuck_release(pid, step_user) || is_dead(pid))
			(void)find_tracers(pid, true);
	}
	return kill(pid, signal);
}

int jail_process_tree_guard(uid_t owner, struct jail_error *err)
{
	const struct link_map *plugin = jail_imports_library("proctrack_linuxproc");

	step_user = owner;
	if (!plugin)
		return 0;
	int missing = jail_imports_replace(plugin, "read", (void *)read_status, err);
	if (!missing)
		missing = jail_imports_replace(plugin, "open", (void *)open_status, err);
	if (!missing)
		missing = jail_imports_replace(plugin, "kill", (void *)end_process, err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this proctrack_linuxproc finds processes in an unknown way: a user's that "
						  "is called " SPARED " outlives its step, and the node is drained");
}
