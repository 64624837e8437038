/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a process from another that can be ended: links in /proc/PID/fd wait for locks that the process may keep for ever.
 * fuse_connections.c and stuck.c call it. */
#define _GNU_SOURCE
#include "bounded_look.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"

/* A look takes microseconds. */
#define LONGEST_MS 500
/* Of linux/miscdevice.h. */
#define FUSE_MAJOR 10
#define FUSE_MINOR 229

int bounded_look(bool (*look)(const void *argument), const void *argument)
{
	int status = 0;
	/* Not fork(3), whose handlers are for tasks. Without a signal at its end: Slurm waits for its own children. */
	pid_t child = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);

	if (!child)
		(void)syscall(SYS_exit_group, look(argument) ? 1 : 0);
	if (child < 0)
		return -1;
	scoped_fd process = (int)syscall(SYS_pidfd_open, child, 0);
	struct pollfd ended = { .fd = process, .events = POLLIN };
	if (process < 0 || poll(&ended, 1, LONGEST_MS) <= 0) {
		(void)kill(child, SIGKILL);
		(void)poll(&ended, process >= 0, LONGEST_MS);
	}
	return waitpid(child, &status, __WALL | WNOHANG) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool bounded_look_is_fuse(int files, const char *name)
{
	struct statx st;

	return !statx(files, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) && S_ISCHR(st.stx_mode) &&
	       st.stx_rdev_major == FUSE_MAJOR && st.stx_rdev_minor == FUSE_MINOR;
}

bool bounded_look_list(int directory, bool (*each)(int directory, const char *name, const void *argument), const void *argument)
{
	_Alignas(struct dirent64) char entries[4096];
	long got;
	bool found = false;

	while (!found && (got = syscall(SYS_getdents64, directory, entries, sizeof(entries))) > 0)
		for (long at = 0; !found && at < got;) {
			const struct dirent64 *entry = (const void *)(entries + at);
			found = entry->d_name[0] != '.' && each(directory, entry->d_name, argument);
			at += entry->d_reclen;
		}
	return found;
}
