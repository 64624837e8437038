/* SPDX-License-Identifier: Apache-2.0 */
/* Checks which open descriptors a task takes into the jail, and closes those that would lead outside. enter_step.c
 * calls it. */
#define _GNU_SOURCE
#include "task_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int jail_task_descriptors_check(struct jail_error *err)
{
	static const char *const names[] = { "input", "output", "error" };
	struct stat st;

	for (int fd = 0; fd <= 2; fd++)
		if (!fstat(fd, &st) && S_ISDIR(st.st_mode))
			return jail_fail(err, NULL, 0, "the standard %s of the job is a directory; give a file, as in --%s=FILE",
					 names[fd], names[fd]);
	return 0;
}

/* Descriptors are given out lowest first: after this many free numbers in a row there are no more. Should
 * there be one all the same, it is closed with the others. */
#define FREE_RUN 64

int jail_task_descriptors_avoid(const char *spool, struct jail_error *err)
{
	struct statx own, st;

	if (statx(AT_FDCWD, spool, 0, STATX_MNT_ID, &own) || !(own.stx_mask & STATX_MNT_ID))
		return 0;
	for (int fd = 0, unused = 0; unused < FREE_RUN; fd++) {
		bool open = !statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID | STATX_TYPE, &st);
		unused = open ? 0 : unused + 1;
		if (!open || !S_ISREG(st.stx_mode) || st.stx_mnt_id != own.stx_mnt_id || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
			continue;
		jail_fail(err, NULL, 0, "it lies in slurmd's directory, which is no place for a job's files; name another");
		return jail_error_at(err, "--output", 0, spool);
	}
	return 0;
}

static bool is_socket_pair(int fd)
{
	struct sockaddr_un own, peer;
	socklen_t own_size = sizeof(own), peer_size = sizeof(peer);

	return !getsockname(fd, (struct sockaddr *)&own, &own_size) && own.sun_family == AF_UNIX &&
	       own_size == sizeof(sa_family_t) && !getpeername(fd, (struct sockaddr *)&peer, &peer_size) &&
	       peer_size == sizeof(sa_family_t);
}

/* Closed at once, not on execution: the program's own path and the working directory, which the user names, are
 * looked up before, and could lead through /proc/self/fd to what slurmstepd has open. */
static bool is_directory(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISDIR(st.st_mode);
}

/* Not one that was opened as if it were a file: the job's own input, which jail_task_descriptors_check finds in its place, and of
 * which it tells the user. */
static bool is_walked(int fd, int how)
{
	return (how & (O_DIRECTORY | O_PATH)) && is_directory(fd);
}

/* Whether the program is to have it: one of a pair of sockets, by which Slurm speaks with it. Any socket is open for both. */
static bool is_passed_on(int fd, int how)
{
	return (how & O_ACCMODE) == O_RDWR && !(fcntl(fd, F_GETFD) & FD_CLOEXEC) && is_socket_pair(fd);
}

static int close_on_execution(int first, int last, struct jail_error *err)
{
	if (first <= last && syscall(SYS_close_range, (unsigned)first, (unsigned)last, CLOSE_RANGE_CLOEXEC))
		return jail_fail(err, "close_range", errno, "cannot mark descriptors close-on-exec; Linux 5.11 or newer is needed");
	return 0;
}

/* Not by listing /proc/thread-self/fd: that alone takes 0.1 ms a task. One call for each descriptor, of which a step of
 * many tasks has hundreds, in each task. */
int jail_task_descriptors_seal(struct jail_error *err)
{
	int fd = 3, first = fd;

	for (int unused = 0; unused < FREE_RUN; fd++) {
		int how = fcntl(fd, F_GETFL);
		unused = how < 0 ? unused + 1 : 0;
		if (how < 0)
			continue;
		if (is_walked(fd, how)) {
			close(fd);
		} else if (is_passed_on(fd, how)) {
			if (close_on_execution(first, fd - 1, err))
				return -1;
			first = fd + 1;
		}
	}
	if (close_on_execution(first, fd - 1, err))
		return -1;
	if (syscall(SYS_close_range, (unsigned)fd, ~0U, 0))
		return jail_fail(err, "close_range", errno, "cannot close descriptors; Linux 5.9 or newer is needed");
	return 0;
}
