/* SPDX-License-Identifier: Apache-2.0 */
/* Aborts FUSE file systems of users through the kernel's fusectl, mounted where no path leads to. stuck_processes.c
 * calls it. */
#define _GNU_SOURCE
#include "fuse_connections.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "spank_jail/job/job_namespaces.h"
#include "bounded_look.h"
#include "spank_jail/guards/common/process_status.h"

/* A thread of root's inside has a mount namespace of its own, of 100,000 mounts (fs.mount-max), and a process as many threads as it
 * likes, for each of which all connections are looked for: so much time of each half minute. */
#define LOOKING_MS 3000
#define OF_MS 30000

static struct {
	long long since, spent, begun;
} looking;

static void begin_looking(void)
{
	looking.begun = clock_ms();
	if (looking.begun - looking.since >= OF_MS) {
		looking.since = looking.begun;
		looking.spent = 0;
	}
}

static bool may_look(void)
{
	return looking.spent + clock_ms() - looking.begun < LOOKING_MS;
}

static void end_looking(void)
{
	looking.spent += clock_ms() - looking.begun;
}

/* The root of a fusectl of its own: containers have none at /sys/fs/fuse/connections. */
static int open_control(void)
{
	scoped_fd fs = sys_fsopen("fusectl");

	if (fs < 0 || sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL))
		return -1;
	scoped_fd mount = sys_fsmount(fs, 0);
	return mount < 0 ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Whether a mountinfo has the connection: its name is the number of the device. One of `users` is given up with the rest. */
static bool has_mounted(const char *mountinfo, unsigned long connection, bool users)
{
	FILE *stream = fopen(mountinfo, "re");
	char *line = NULL;
	size_t size = 0;
	unsigned long minor;
	bool found = false;

	while (stream && !found && (!users || may_look()) && getline(&line, &size, stream) > 0)
		found = sscanf(line, "%*d %*d 0:%lu", &minor) == 1 && minor == connection;
	free(line);
	if (stream)
		(void)fclose(stream);
	return found;
}

struct served {
	const char *thread;
	unsigned long connection;
};

/* Of nothing but a /dev/fuse the fdinfo is read: that of an epoll(7) waits for a lock, and for no signal. */
static bool is_connection(int files, const char *name, const void *argument)
{
	const struct served *served = argument;
	char path[128], text[1024];

	snprintf(path, sizeof(path), "%s/fdinfo/%.16s", served->thread, name);
	return bounded_look_is_fuse(files, name) && process_read(path, text, sizeof(text)) &&
	       process_number(text, "\nfuse_connection:\t") == (long)served->connection;
}

static bool look_for_connection(const void *argument)
{
	const struct served *served = argument;
	char path[128];

	snprintf(path, sizeof(path), "%s/fd", served->thread);
	scoped_fd files = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return files >= 0 && bounded_look_list(files, is_connection, served);
}

/* Whether a thread has the /dev/fuse of the connection open; -1: it does not let itself be looked at. Linux 6.16 tells it, of
 * who is root as the caller is. */
static int serves(const char *thread, unsigned long connection)
{
	const struct served served = { .thread = thread, .connection = connection };

	return bounded_look(look_for_connection, &served);
}

/* As serves; -1 also when too many were looked at. */
static int waits_for(pid_t pid, unsigned long connection)
{
	char path[64], mountinfo[80];
	struct dirent *entry;
	int found = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	while (threads && !found && (entry = readdir(threads))) {
		if (!may_look()) {
			found = -1;
			break;
		}
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s", (int)pid, entry->d_name);
		snprintf(mountinfo, sizeof(mountinfo), "%s/mountinfo", path);
		if (entry->d_name[0] != '.' && process_thread_waits(path))
			found = has_mounted(mountinfo, connection, true) ? 1 : serves(path, connection);
	}
	if (threads)
		closedir(threads);
	return found;
}

static bool is_waited_for(int control, const char *name)
{
	char path[32], text[16] = "";

	snprintf(path, sizeof(path), "%.16s/waiting", name);
	scoped_fd file = openat(control, path, O_RDONLY | O_CLOEXEC);
	return file >= 0 && read(file, text, sizeof(text) - 1) > 0 && strtol(text, NULL, 10) > 0;
}

static void abort_one(int control, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "%.16s/abort", name);
	scoped_fd file = openat(control, path, O_WRONLY | O_CLOEXEC);
	/* Who mounted it may have ended it meanwhile. */
	if (file >= 0 && write(file, "1", 1) < 0)
		return;
}

static void consider(int control, const char *name, pid_t pid, uid_t user)
{
	unsigned long connection = strtoul(name, NULL, 10);
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "%.16s/abort", name);
	if (!is_waited_for(control, name) || fstatat(control, path, &st, 0))
		return;
	int waits = user && st.st_uid == user ? 1 : waits_for(pid, connection);
	/* Of what cannot be told, those of other users with a job here are left alone. */
	if (!waits || (waits < 0 && user && jail_user_init(st.st_uid)))
		return;
	if (!has_mounted("/proc/self/mountinfo", connection, false) && !has_mounted("/proc/1/mountinfo", connection, false))
		abort_one(control, name);
}

void jail_fuse_connections_abort(pid_t pid, uid_t user)
{
	uid_t before = geteuid();
	struct dirent *entry;

	if (before && sys_thread_seteuid(0))
		return;
	begin_looking();
	int control = open_control();
	DIR *connections = control < 0 ? NULL : fdopendir(control);
	while (connections && (entry = readdir(connections)))
		if (isdigit((unsigned char)entry->d_name[0]))
			consider(control, entry->d_name, pid, user);
	if (connections)
		closedir(connections);
	else
		jail_close(&control);
	end_looking();
	if (before && sys_thread_seteuid(before))
		abort();
}
