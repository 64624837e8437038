/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for the node's own processes that hang in the kernel, zombies of its daemons, and processes that ended jobs
 * left. node_checks.c calls it.
 *
 * Users can make processes hang, such as by a FUSE file system, and leave zombies. These must not drain a node, so
 * only processes of root in the node's own mount namespace count: no job is in it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

/* Ids of users, as the plugin takes them by default (spank_jail/options/arguments.c): others are daemons', the images' own among
 * them. */
#define FIRST_USER 1000
#define LAST_USER 60000
#define FIRST_OTHER_USER 65536

/* Root in a job may have 65,536 groups, whose numbers stand in proc_pid_status(5). */
#define MOST_STATUS (1024 * 1024)

struct process {
	const char *pid; /* its folder's name */
	char state;
	char parent[16];
	uid_t uid;
	bool is_inner; /* in a PID namespace of jobs, whose init is root's */
};

/* Copies the words of a line of proc_pid_status(5) to `value`. */
static bool status_line(const char *status, const char *name, char *value, size_t size)
{
	scoped_free char *begin = text_format("\n%s:\t", name);
	const char *line = strstr(status, begin);

	if (!line)
		return false;
	line += strlen(begin);
	snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
	return true;
}

/* Reads proc_pid_status(5); one that has ended meanwhile is none. Whoever reads the stat of a process waits while it executes a program of a
 * file system that nobody serves. */
static bool read_process(int proc, const char *pid, struct process *process)
{
	scoped_free char *path = text_format("%s/status", pid);
	scoped_free char *text = text_read(proc, path, MOST_STATUS, NULL, &(struct jail_error){ 0 });
	char state[16], numbers[256];
	struct stat st;

	*process = (struct process){ .pid = pid };
	if (!text || fstatat(proc, path, &st, 0) || !status_line(text, "State", state, sizeof(state)) ||
	    !status_line(text, "PPid", process->parent, sizeof(process->parent)))
		return false;
	process->state = state[0];
	process->uid = st.st_uid;
	/* A number for each namespace. */
	process->is_inner = status_line(text, "NSpid", numbers, sizeof(numbers)) && strchr(numbers, '\t');
	return true;
}

/* Tells a process from a later one of its number, without reading of it; from Linux 6.9 on. */
static unsigned long long identity(const char *pid)
{
	scoped_fd fd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);
	struct stat st;

	return fd < 0 || fstat(fd, &st) ? 0 : st.st_ino;
}

/* Root's, and in the mount namespace of the node's daemons. Its root is not looked at: that may hang, too. */
static bool is_nodes(int proc, const char *pid)
{
	scoped_free char *link = text_format("%s/ns/mnt", pid);
	char theirs[64] = "", own[64] = "";
	struct stat st;

	if (fstatat(proc, pid, &st, 0) || st.st_uid || readlinkat(proc, link, theirs, sizeof(theirs) - 1) < 0 ||
	    readlink("/proc/self/ns/mnt", own, sizeof(own) - 1) < 0)
		return false;
	return !strcmp(theirs, own);
}

/* Calls `count` for each process; `seen` gets a line for each that it takes. Returns how many it took, or -1. */
static long for_each_process(bool (*takes)(int proc, const struct process *process), struct text_buffer *seen)
{
	const char *folder = check_word("proc", "/proc");
	DIR *entries = opendir(folder);
	struct dirent *entry;
	long n = 0;

	if (!entries)
		return -1;
	text_append_string(seen, "\n");
	while ((entry = readdir(entries))) {
		struct process process;
		if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !read_process(dirfd(entries), entry->d_name, &process) ||
		    !takes(dirfd(entries), &process))
			continue;
		scoped_free char *line = text_format("%s %llu\n", process.pid, identity(process.pid));
		text_append_string(seen, line);
		n++;
	}
	closedir(entries);
	return n;
}

/* How many lines of `now` stand in `before`, too. */
static unsigned still_there(const char *before, const char *now)
{
	scoped_free char *copy = text_copy(now, strlen(now));
	char *rest = copy, *line;
	unsigned n = 0;

	while (before && (line = strsep(&rest, "\n"))) {
		scoped_free char *whole = text_format("\n%s\n", line);
		n += *line && strstr(before, whole);
	}
	return n;
}

static bool hangs(int proc, const struct process *process)
{
	return process->state == 'D' && !process->is_inner && is_nodes(proc, process->pid);
}

int check_stuck(void)
{
	scoped_free char *before = check_recall("stuck");
	scoped_buffer now = { 0 };

	if (check_is_fresh("stuck", check_number("apart", 5)))
		return CHECK_PASSED;
	if (for_each_process(hangs, &now) < 0)
		return check_could_not_run("/proc: %s", strerrordesc_np(errno));
	check_remember("stuck", now.text);
	unsigned stuck = still_there(before, now.text);
	if (stuck >= check_number("most", 1))
		return check_failed("%u processes of the node have hung in the kernel since the last look", stuck);
	return CHECK_PASSED;
}

/* Who traces an orphan in a job can keep it dead as long as they like. */
static bool is_zombie(int proc, const struct process *process)
{
	return process->state == 'Z' && !process->is_inner && is_nodes(proc, process->parent);
}

int check_zombies(void)
{
	scoped_buffer now = { 0 };
	long n = for_each_process(is_zombie, &now);

	if (n < 0)
		return check_could_not_run("/proc: %s", strerrordesc_np(errno));
	if ((uint64_t)n >= check_number("most", 200))
		return check_failed("%ld zombies that a daemon of the node does not wait for", n);
	return CHECK_PASSED;
}

static bool is_users(int proc, const struct process *process)
{
	(void)proc;
	return ((process->uid >= FIRST_USER && process->uid <= LAST_USER) || process->uid >= FIRST_OTHER_USER) &&
	       process->state != 'Z';
}

int check_leftovers(void)
{
	scoped_free char *before = check_recall("processes");
	const char *bcast = check_word("bcast", "/run/bcast");
	scoped_buffer now = { 0 };
	struct statvfs st;
	int jobs = check_has_jobs();

	if (jobs < 0)
		return check_could_not_run("whether jobs run is not known");
	if (check_is_fresh("processes", check_number("apart", 5)))
		return CHECK_PASSED;
	if (jobs) {
		check_remember("processes", "\n");
		return CHECK_PASSED;
	}
	if (for_each_process(is_users, &now) < 0)
		return check_could_not_run("/proc: %s", strerrordesc_np(errno));
	check_remember("processes", now.text);
	unsigned left = still_there(before, now.text);
	if (left)
		return check_failed("no job runs, and %u processes of users are left since the last look", left);
	if (!statvfs(bcast, &st) && st.f_blocks && (st.f_blocks - st.f_bfree) * 100 / st.f_blocks >= check_number("full", 50))
		return check_failed("no job runs, and what sbcast brought fills %s by half", bcast);
	return CHECK_PASSED;
}
