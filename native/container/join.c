/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the calling process a member of a container that runs already, by entering its namespaces. enroot/command and
 * pyxis/step call it. */
#define _GNU_SOURCE
#include "join.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "fake_chown.h"
#include "namespaces.h"

static const struct { const char *name, *own; int kind; } namespaces[] = {
	{ "user", "user", CLONE_NEWUSER },   { "mnt", "mnt", CLONE_NEWNS },
	/* A process does not change its own: what it forks is in that one. */
	{ "pid", "pid_for_children", CLONE_NEWPID },
	{ "net", "net", CLONE_NEWNET },	     { "ipc", "ipc", CLONE_NEWIPC },
	{ "uts", "uts", CLONE_NEWUTS },	     { "cgroup", "cgroup", CLONE_NEWCGROUP },
};

#define N_NAMESPACES (sizeof(namespaces) / sizeof(namespaces[0]))

static int open_spaces(const char *process)
{
	scoped_free char *path = text_format("/proc/%s/ns", process);

	return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Whether both are in one namespace. -1 and errno: that cannot be told. */
static int is_same(int own, int theirs, size_t i)
{
	struct stat a, b;

	/* A kernel without this kind has none for anybody. */
	if (fstatat(own, namespaces[i].own, &a, 0))
		return errno == ENOENT ? 1 : -1;
	if (fstatat(theirs, namespaces[i].name, &b, 0))
		return -1;
	return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Whether an IPC namespace that differs is not the container's but that of the job in which it was started: the jail gives
 * each job one (docs/jail-isolation.md). It belongs to our own user namespace, and nobody without rights there joins it. */
static bool is_of_another_job(int theirs)
{
	struct stat own, owner;

	scoped_fd namespace = openat(theirs, "ipc", O_RDONLY | O_CLOEXEC);
	scoped_fd user = namespace < 0 ? -1 : ioctl(namespace, NS_GET_USERNS);
	return user >= 0 && !fstat(user, &owner) && !stat("/proc/self/ns/user", &own) && owner.st_ino == own.st_ino &&
	       owner.st_dev == own.st_dev;
}

int join_differing(long pid, struct jail_error *err)
{
	scoped_free char *process = text_format("%ld", pid);
	scoped_fd own = open_spaces("self"), theirs = open_spaces(process);
	int kinds = 0;

	if (own < 0 || theirs < 0)
		return jail_fail(err, "open", errno, "cannot look at the namespaces of process %ld", pid);
	for (size_t i = 0; i < N_NAMESPACES; i++) {
		int same = is_same(own, theirs, i);
		/* To take it for ours would be to leave whoever joins in the node's. */
		if (same < 0)
			return jail_fail(err, "stat", errno, "cannot tell which %s namespace process %ld is in; is it a container of "
					 "yours?", namespaces[i].name, pid);
		if (!same && !(namespaces[i].kind == CLONE_NEWIPC && (kinds & CLONE_NEWUSER) && is_of_another_job(theirs)))
			kinds |= namespaces[i].kind;
	}
	return kinds;
}

int join_enter(int process, int kinds, long pid, struct jail_error *err)
{
	scoped_free char *name = text_format("%ld", pid);
	/* From before: within, /proc is what the container has there. */
	scoped_fd own = open_spaces("self"), theirs = open_spaces(name);

	if (sys_setns(process, kinds))
		return jail_fail(err, "setns", errno, "cannot join the namespaces of process %ld; is it a container of yours?", pid);
	/* Since `kinds` were looked up its user may have taken it to others: to mounts of the user's own making, where root would run
	 * what lies there, or from a network of its own to the node's. What counts is where this process is now. */
	for (size_t i = 0; i < N_NAMESPACES; i++) {
		if ((namespaces[i].kind & (CLONE_NEWPID | CLONE_NEWIPC)) && !(kinds & namespaces[i].kind))
			continue;
		if (own < 0 || theirs < 0 || is_same(own, theirs, i) != 1)
			return jail_fail(err, NULL, 0, "process %ld has ended, or gone to another %s namespace, while it was joined", pid,
					 namespaces[i].name);
	}
	return 0;
}

int join_confine(int kinds, struct jail_error *err)
{
	if (!(kinds & CLONE_NEWUSER))
		return 0;
	return fake_chown(err) ? -1 : namespaces_drop_rights(geteuid(), err);
}
