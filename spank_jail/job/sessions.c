/* SPDX-License-Identifier: Apache-2.0 */
/* Ends login sessions of users on a node who have no job there any more. plugin.c calls it. */
#define _GNU_SOURCE
#include "sessions.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/base/scoped.h"

/* Who forks meanwhile is found by the next look; who goes on and on, by the end of the next job. */
#define MOST_LOOKS 20

static bool read_file(const char *pid, const char *name, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.16s/%s", pid, name);
	scoped_fd file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = file < 0 ? -1 : read(file, text, size - 1);
	text[got > 0 ? got : 0] = '\0';
	return got > 0;
}

/* proc_pid_status(5): jobs and sessions have a PID namespace below the node's, and so two numbers. */
static bool is_inside(const char *status)
{
	const char *numbers = strstr(status, "\nNSpid:\t");

	if (!numbers)
		return false;
	numbers += strlen("\nNSpid:\t");
	size_t first = strspn(numbers, "0123456789");
	return numbers[first] == '\t';
}

/* By its uid, or by that of the login (pam_loginuid(8)), which no process inside can change. */
static bool is_of(const char *pid, const char *status, uid_t user)
{
	const char *uids = strstr(status, "\nUid:\t");
	char login[32];

	if (uids && (uid_t)strtoul(uids + strlen("\nUid:\t"), NULL, 10) == user)
		return true;
	return read_file(pid, "loginuid", login, sizeof(login)) && (uid_t)strtoul(login, NULL, 10) == user;
}

static bool end_one(const char *pid, uid_t user)
{
	/* With the groups of root inside, of which there may be 65,536, before what counts here. */
	static char status[1 << 20];
	/* First, so that the number cannot become another's. */
	scoped_fd process = (int)syscall(SYS_pidfd_open, (pid_t)strtol(pid, NULL, 10), 0);

	return process >= 0 && read_file(pid, "status", status, sizeof(status)) && is_inside(status) && is_of(pid, status, user) &&
	       !strstr(status, "\nState:\tZ") && !syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
}

void jail_sessions_end(uid_t user)
{
	bool found = true;

	for (int look = 0; found && look < MOST_LOOKS; look++) {
		struct dirent *entry;
		DIR *processes = opendir("/proc");
		found = false;
		while (processes && (entry = readdir(processes)))
			found |= isdigit((unsigned char)entry->d_name[0]) && end_one(entry->d_name, user);
		if (processes)
			closedir(processes);
		if (found)
			usleep(1000); /* for what was killed to be gone */
	}
}
