/* SPDX-License-Identifier: Apache-2.0 */
/* Lets what slurmd forks for a user write in one place alone. plugin.c calls it. */
#define _GNU_SOURCE
#include "served.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "imports.h"

#define SHUT (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

static pid_t daemon_pid;
static char open_place[PATH_MAX];

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

/* In place of setgid(2) in slurmd, which calls it in such children alone, before it changes the uid. When it fails, Slurm logs
 * the error, and the child ends. */
static int become_group(gid_t group)
{
	if (getpid() != daemon_pid && shut_out())
		return -1;
	return setgid(group);
}

int jail_served_guard(const char *bcast, struct jail_error *err)
{
	const struct link_map *slurmd = jail_imports_program();
	int missing;

	daemon_pid = getpid();
	if (snprintf(open_place, sizeof(open_place), "%s", bcast) >= (int)sizeof(open_place))
		return jail_fail(err, NULL, 0, "bcast= is too long");
	missing = slurmd ? jail_imports_replace(slurmd, "setgid", (void *)become_group, err) : 1;
	if (missing <= 0)
		return missing;
	return jail_fail(err, NULL, 0, "this slurmd becomes a user in an unknown way: what sbcast and `srun --bcast` bring can be "
			 "written wherever the user may write on the node");
}
