/* SPDX-License-Identifier: Apache-2.0 */
/* Aborts FUSE connections through fusectl, which no path leads to. stuck.c calls it. */
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

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "process_status.h"

/* The root of a fusectl of its own: containers have none at /sys/fs/fuse/connections. */
static int open_control(void)
{
	scoped_fd fs = sys_fsopen("fusectl");

	if (fs < 0 || sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL))
		return -1;
	scoped_fd mount = sys_fsmount(fs, 0);
	return mount < 0 ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Whether a mountinfo has the connection: its name is the number of the device. */
static bool has_mounted(const char *mountinfo, unsigned long connection)
{
	FILE *stream = fopen(mountinfo, "re");
	char *line = NULL;
	size_t size = 0;
	unsigned long minor;
	bool found = false;

	while (stream && !found && getline(&line, &size, stream) > 0)
		found = sscanf(line, "%*d %*d 0:%lu", &minor) == 1 && minor == connection;
	free(line);
	if (stream)
		(void)fclose(stream);
	return found;
}

/* Whether a thread has the /dev/fuse of the connection open. Linux 6.16 tells it, of who is root as the caller is. */
static bool serves(const char *thread, unsigned long connection)
{
	char path[128], text[1024];
	struct dirent *entry;
	bool found = false;

	snprintf(path, sizeof(path), "%s/fdinfo", thread);
	DIR *files = opendir(path);
	while (files && !found && (entry = readdir(files))) {
		snprintf(path, sizeof(path), "%s/fdinfo/%.16s", thread, entry->d_name);
		found = isdigit((unsigned char)entry->d_name[0]) && process_read(path, text, sizeof(text)) &&
			process_number(text, "\nfuse_connection:\t") == (long)connection;
	}
	if (files)
		closedir(files);
	return found;
}

static bool waits_for(pid_t pid, unsigned long connection)
{
	char path[64], mountinfo[80];
	struct dirent *entry;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *threads = opendir(path);
	while (threads && !found && (entry = readdir(threads))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s", (int)pid, entry->d_name);
		snprintf(mountinfo, sizeof(mountinfo), "%s/mountinfo", path);
		found = process_thread_waits(path) && (has_mounted(mountinfo, connection) || serves(path, connection));
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
	if ((!user || st.st_uid != user) && !waits_for(pid, connection))
		return;
	if (!has_mounted("/proc/self/mountinfo", connection) && !has_mounted("/proc/1/mountinfo", connection))
		abort_one(control, name);
}

void jail_fuse_connections_abort(pid_t pid, uid_t user)
{
	uid_t before = geteuid();
	struct dirent *entry;

	if (before && sys_thread_seteuid(0))
		return;
	int control = open_control();
	DIR *connections = control < 0 ? NULL : fdopendir(control);
	while (connections && (entry = readdir(connections)))
		if (isdigit((unsigned char)entry->d_name[0]))
			consider(control, entry->d_name, pid, user);
	if (connections)
		closedir(connections);
	else
		jail_close(&control);
	if (before && sys_thread_seteuid(before))
		abort();
}
