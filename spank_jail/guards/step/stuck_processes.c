/* SPDX-License-Identifier: Apache-2.0 */
/* Ends what a killed process of a step waits for, so that it can end: aborts FUSE file systems, and kills the
 * processes that serve them. process_tree.c calls it. */
#define _GNU_SOURCE
#include "stuck_processes.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "spank_jail/job/job_directory.h"
#include "spank_jail/job/job_namespaces.h"
#include "bounded_look.h"
#include "fuse_connections.h"
#include "spank_jail/guards/common/process_status.h"

/* Seconds. A disk or a volume that is slow keeps a process waiting, too. */
#define ORPHANS_AFTER_S 4
#define OTHERS_AFTER_S 8
/* Parents of parents: more than that is nobody's. */
#define MOST_PARENTS 256
/* Processes that do not let themselves be looked at, of one round. */
#define MOST_UNANSWERED_LOOKS 3

/* Which processes got SIGKILL, and when first. */
static struct {
	pid_t pid;
	time_t since;
} killed[1024];
static size_t n_killed;
/* When the list was last looked through, and all processes of the node: once a second, for however many that do not end. */
static time_t last_sweep, last_look;

/* Whether a thread of it waits. */
static bool waits(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	while (threads && !found && (entry = readdir(threads))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s", (int)pid, entry->d_name);
		found = process_thread_waits(path);
	}
	if (threads)
		closedir(threads);
	return found;
}

/* The node's own process, of which `pid` is a descendant: the init of a PID namespace of users, a slurmstepd, or the node's init.
 * 0: it cannot be told. */
static pid_t find_root(pid_t pid)
{
	char path[32], status[4096];

	for (int i = 0; i < MOST_PARENTS && pid > 0; i++) {
		if (pid == 1)
			return pid;
		snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
		if (!process_read_status(path, status, sizeof(status)))
			return 0;
		if (!process_is_users(status))
			return pid;
		pid = (pid_t)process_number(status, "\nPPid:\t");
	}
	return 0;
}

void jail_stuck_leave(pid_t init, uid_t user)
{
	struct dirent *entry;

	DIR *processes = opendir("/proc");
	while (processes && (entry = readdir(processes))) {
		pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
		if (pid > 0 && waits(pid) && find_root(pid) == init)
			jail_fuse_connections_abort(pid, user);
	}
	if (processes)
		closedir(processes);
}

/* By the title that slurmstepd gives itself: "slurmstepd: [JOB.STEP]". */
static bool is_step_of(pid_t stepd, uid_t user)
{
	char path[32], title[256];
	struct stat st;
	unsigned job;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)stepd);
	if (!process_read(path, title, sizeof(title)) || sscanf(title, "slurmstepd: [%u.", &job) != 1)
		return false;
	scoped_fd directory = jail_job_find(job);
	return directory >= 0 && !fstat(directory, &st) && st.st_uid == user;
}

/* At level pid: the init of this step's own PID namespace. */
static bool is_own_init(pid_t root)
{
	char path[32], status[4096];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)root);
	return process_read_status(path, status, sizeof(status)) && process_number(status, "\nPPid:\t") == getpid();
}

struct server {
	pid_t pid;
	uid_t user;
	gid_t group;
};

/* Or that cannot be told. */
static bool is_served_by(int files, const char *name, const void *unused)
{
	char target[64];

	(void)unused;
	return readlinkat(files, name, target, sizeof(target)) < 0 || bounded_look_is_fuse(files, name);
}

/* Whether one of its descriptors is what FUSE is served by, or that cannot be told. As its own user, whom the kernel lets look. */
static bool look_for_served(const void *argument)
{
	const struct server *server = argument;
	char path[64];

	if ((geteuid() && sys_thread_seteuid(0)) || syscall(SYS_setresgid, -1, server->group, -1) || sys_thread_seteuid(server->user))
		return true;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)server->pid);
	scoped_fd files = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return files < 0 || bounded_look_list(files, is_served_by, NULL);
}

/* Who does not let itself be looked at may serve; after some of them nobody else is looked at. */
static bool may_serve(pid_t pid, const char *status, unsigned *unanswered)
{
	const struct server server = { pid, (uid_t)process_number(status, "\nUid:\t"), (gid_t)process_number(status, "\nGid:\t") };
	int serves = *unanswered < MOST_UNANSWERED_LOOKS ? bounded_look(look_for_served, &server) : -1;

	*unanswered += serves < 0;
	return serves != 0;
}

static void end(pid_t pid, uid_t user, pid_t init, unsigned *unanswered, bool others)
{
	char path[32], status[4096];
	/* First, so that the number cannot become another's. */
	scoped_fd process = (int)syscall(SYS_pidfd_open, pid, 0);

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (process < 0 || !process_read_status(path, status, sizeof(status)) || !process_is_users(status))
		return;
	pid_t root = find_root(pid);
	if (root <= 0 || root == getpid())
		return;
	/* At level filesystem the node's init has the user's orphans; those of root are not told from its own. */
	bool orphan = root == 1 ? user && process_number(status, "\nUid:\t") == (long)user : root == init || is_own_init(root);
	if (orphan || (others && is_step_of(root, user) && may_serve(pid, status, unanswered)))
		(void)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

static void forget_the_ended(void)
{
	size_t kept = 0;

	for (size_t i = 0; i < n_killed; i++)
		if (waits(killed[i].pid))
			killed[kept++] = killed[i];
	n_killed = kept;
}

/* How many seconds ago the process got SIGKILL first. Of more than can be noted: as long ago as the first of them. */
static time_t seconds_since(pid_t pid)
{
	const size_t most = sizeof(killed) / sizeof(killed[0]);
	time_t now = clock_s();

	for (size_t i = 0; i < n_killed; i++)
		if (killed[i].pid == pid)
			return now - killed[i].since;
	if (n_killed == most && last_sweep != now) {
		last_sweep = now;
		forget_the_ended();
	}
	if (n_killed == most)
		return now - killed[0].since;
	killed[n_killed].pid = pid;
	killed[n_killed++].since = now;
	return 0;
}

bool jail_stuck_release(pid_t pid, uid_t user)
{
	struct dirent *entry;
	unsigned unanswered = 0;
	time_t waited = seconds_since(pid), now = clock_s();

	if (waited < ORPHANS_AFTER_S || !waits(pid))
		return false;
	if (last_look != now) {
		last_look = now;
		pid_t init = jail_user_init(user);
		DIR *processes = opendir("/proc");
		while (processes && (entry = readdir(processes)))
			if (isdigit((unsigned char)entry->d_name[0]))
				end((pid_t)strtol(entry->d_name, NULL, 10), user, init, &unanswered, waited >= OTHERS_AFTER_S);
		if (processes)
			closedir(processes);
	}
	if (waited >= OTHERS_AFTER_S)
		jail_fuse_connections_abort(pid, user);
	return true;
}
