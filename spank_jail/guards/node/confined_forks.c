/* SPDX-License-Identifier: Apache-2.0 */
/* Confines the processes that slurmd forks to open a file or socket for a user: where they write, how many files they
 * open, and to whose sockets they connect. guards.c calls it. */
#define _GNU_SOURCE
#include "confined_forks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "spank_jail/guards/common/imported_functions.h"

#define SHUT (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Files that slurmd has open for users. An sbcast that ends half-way leaves one for five minutes, and slurmd without descriptors answers
 * nobody. Of one user; of all together half of what slurmd may have, but no more. */
#define MOST_OF_ONE_USER 128
#define MOST_OPEN 4096

static pid_t daemon_pid;
static char open_place[PATH_MAX];
static uid_t owners[MOST_OPEN];
static size_t n_open;
/* This process is such a child, and opens a file for slurmd. */
static bool opens_for_slurmd;

/* A mount of its own, wherever it lies. */
static int leave_open(const char *path)
{
	const struct mount_attr attributes = {
		.attr_set = MOUNT_ATTR_NOSYMFOLLOW, .attr_clr = MOUNT_ATTR_RDONLY,
	};
	scoped_fd mount = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE);

	if (mount < 0)
		return errno == ENOENT ? 0 : -1;
	return sys_mount_attributes(mount, "", AT_EMPTY_PATH, &attributes) ||
	       sys_move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH);
}

/* In the child, which is root still. Without /proc: /proc/self/fd leads to what slurmd has open, by the mounts that are not
 * shut. */
static int shut_out(void)
{
	return sys_unshare(CLONE_NEWNS) || sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, SHUT, JAIL_MS_PRIVATE) ||
	       sys_umount2("/proc", JAIL_MNT_DETACH) || leave_open(open_place) ? -1 : 0;
}

/* In the child, which has what slurmd has, where it still sees /proc. */
static void note_open_files(void)
{
	struct stat place, st;
	struct dirent *entry;
	DIR *list = stat(open_place, &place) ? NULL : opendir("/proc/self/fd");

	while (list && n_open < MOST_OPEN && (entry = readdir(list)))
		if (entry->d_name[0] != '.' && !fstat(atoi(entry->d_name), &st) && S_ISREG(st.st_mode) && st.st_dev == place.st_dev)
			owners[n_open++] = st.st_uid;
	if (list)
		closedir(list);
}

static bool may_open_another(uid_t user)
{
	struct rlimit files = { MOST_OPEN, MOST_OPEN };
	size_t own = 0;

	(void)getrlimit(RLIMIT_NOFILE, &files);
	for (size_t i = 0; i < n_open; i++)
		own += owners[i] == user;
	return own < MOST_OF_ONE_USER && n_open < MOST_OPEN && n_open < files.rlim_cur / 2;
}

/* In place of setresuid(2) there, by which they become the user, before they open a file for slurmd. */
static int become_user(uid_t real, uid_t effective, uid_t saved)
{
	if (getpid() == daemon_pid)
		return setresuid(real, effective, saved);
	if (!may_open_another(effective)) {
		errno = EMFILE;
		return -1;
	}
	opens_for_slurmd = true;
	return setresuid(real, effective, saved);
}

/* In place of open(2) there. slurmd writes to the file with a lock held, without which no job of the node ends: it must be none that
 * makes it wait, as a FIFO of which nobody reads. */
static int open_file(const char *path, int flags, ...)
{
	struct stat st;
	mode_t mode = 0;
	va_list values;

	va_start(values, flags);
	if (flags & O_CREAT)
		mode = va_arg(values, mode_t);
	va_end(values);
	if (!opens_for_slurmd)
		return open(path, flags, mode);
	scoped_fd file = open(path, flags | O_NONBLOCK | O_NOCTTY, mode);
	if (file < 0)
		return -1;
	if (fstat(file, &st) || !S_ISREG(st.st_mode) || fcntl(file, F_SETFL, flags & ~O_NONBLOCK)) {
		errno = EINVAL;
		return -1;
	}
	return jail_keep(&file);
}

/* In place of setgid(2) in slurmd, which calls it in such children alone, before it changes the uid. When it fails, Slurm logs
 * the error, and the child ends. */
static int become_group(gid_t group)
{
	if (getpid() != daemon_pid) {
		note_open_files();
		if (shut_out())
			return -1;
	}
	return setgid(group);
}

/* What lies in the spool is root's to make, so nobody exchanges it between the look and the act. */
static bool is_own(const struct sockaddr *address, socklen_t size)
{
	struct sockaddr_un local = { 0 };
	struct stat st;

	memcpy(&local, address, size < sizeof(local) ? size : sizeof(local) - 1);
	return !lstat(local.sun_path, &st) && S_ISSOCK(st.st_mode) && st.st_uid == geteuid();
}

/* In place of connect(2), for such a child that has become the user. Everybody may connect to the sockets by which slurmstepd
 * takes orders, and reads are answered there by the rights of who connects. */
static int connect_to_own(int fd, const struct sockaddr *address, socklen_t size)
{
	if (getpid() == daemon_pid || !geteuid() || address->sa_family != AF_UNIX || is_own(address, size))
		return connect(fd, address, size);
	errno = EACCES;
	return -1;
}

/* slurmd's own call, or one of Slurm's library for it, by release. */
static int guard_connections(const struct link_map *slurmd, struct jail_error *err)
{
	const struct link_map *library = jail_imports_library("libslurm");
	int missing = jail_imports_replace(slurmd, "connect", (void *)connect_to_own, err);
	int others = missing < 0 || !library ? 1 : jail_imports_replace(library, "connect", (void *)connect_to_own, err);

	if (missing < 0 || others < 0)
		return -1;
	return !missing || !others ? 0 : jail_fail(err, NULL, 0, "this slurmd connects to sockets in an unknown way: users can have "
						   "it write to those of other users' steps");
}

int jail_confined_forks_guard(const char *bcast, struct jail_error *err)
{
	const struct link_map *slurmd = jail_imports_program();
	int missing;

	daemon_pid = getpid();
	if (snprintf(open_place, sizeof(open_place), "%s", bcast) >= (int)sizeof(open_place))
		return jail_fail(err, NULL, 0, "bcast= is too long");
	missing = slurmd ? jail_imports_replace(slurmd, "setresuid", (void *)become_user, err) : 1;
	if (!missing)
		missing = jail_imports_replace(slurmd, "open", (void *)open_file, err);
	if (!missing)
		missing = jail_imports_replace(slurmd, "setgid", (void *)become_group, err);
	if (missing < 0)
		return -1;
	if (!missing)
		return guard_connections(slurmd, err);
	return jail_fail(err, NULL, 0, "this slurmd becomes a user in an unknown way: what sbcast and `srun --bcast` bring can be "
			 "written wherever the user may write on the node");
}
