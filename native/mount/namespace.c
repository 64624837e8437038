/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, opens, enters and leaves mount namespaces, and IPC namespaces. Files of this folder, enroot/, other
 * libraries in native/ and spank_jail/ call it. */
#define _GNU_SOURCE
#include "namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"

#define COUNT_AT_ONCE 256

/* The calling thread's, which in slurmstepd need not be that of /proc/self. */
#define OWN_NAMESPACE "/proc/thread-self/ns/mnt"

/* Linux 6.9 and 6.11; numbers of the kernel's interface, which headers of older systems lack. */
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
#ifndef PIDFD_GET_MNT_NAMESPACE
#define PIDFD_GET_IPC_NAMESPACE _IO(0xFF, 2)
#define PIDFD_GET_MNT_NAMESPACE _IO(0xFF, 3)
#endif

/* Linux 6.12: NS_MNT_GET_INFO and struct mnt_ns_info. */
struct namespace_information {
	uint32_t size, mounts;
	uint64_t id;
};
#define MNT_NAMESPACE_INFORMATION _IOR(0xb7, 10, struct namespace_information)

/* By pidfd where the kernel can: the first look into /proc/PID/task/TID costs a new process 0.15 ms. */
int jail_namespace_of_thread(unsigned long which, const char *path, struct jail_error *err)
{
	scoped_fd self = (int)syscall(SYS_pidfd_open, (pid_t)syscall(SYS_gettid), PIDFD_THREAD);
	int namespace = self < 0 ? -1 : ioctl(self, which, 0);

	if (namespace < 0)
		namespace = sys_open(path, O_RDONLY);
	return namespace < 0 ? jail_fail(err, "open", errno, "cannot open %s; is /proc mounted?", path) : namespace;
}

int jail_namespace_open(struct jail_error *err)
{
	return jail_namespace_of_thread(PIDFD_GET_MNT_NAMESPACE, OWN_NAMESPACE, err);
}

int jail_namespace_ipc(struct jail_error *err)
{
	return jail_namespace_of_thread(PIDFD_GET_IPC_NAMESPACE, "/proc/thread-self/ns/ipc", err);
}

int jail_namespace_new_ipc(struct jail_error *err)
{
	scoped_fd own = jail_namespace_ipc(err);

	if (own < 0)
		return -1;
	if (sys_unshare(CLONE_NEWIPC))
		return jail_fail(err, "unshare", errno, "cannot make an IPC namespace; see /proc/sys/user/max_ipc_namespaces");
	scoped_fd made = jail_namespace_ipc(err);
	return jail_namespace_enter_ipc(own, err) ? -1 : jail_keep(&made);
}

int jail_namespace_enter_ipc(int namespace, struct jail_error *err)
{
	if (sys_setns(namespace, CLONE_NEWIPC))
		return jail_fail(err, "setns", errno, "cannot join the job's IPC namespace");
	return 0;
}

int jail_namespace_private(struct jail_error *err)
{
	if (sys_unshare(CLONE_NEWNS))
		return jail_fail(err, "unshare", errno, errno == EPERM
				 ? "a mount namespace needs CAP_SYS_ADMIN" : "cannot make a mount namespace");
	if (sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, 0, JAIL_MS_SLAVE))
		return jail_fail(err, "mount_setattr", errno, errno == ENOSYS
				 ? "this kernel lacks mount_setattr; Linux 5.12 or newer is needed"
				 : "cannot keep the jail's mounts from spreading; is / a mount point?");
	return 0;
}

int jail_namespace_pivot(const char *path, struct jail_error *err)
{
	/* The path, not a descriptor: one opened before an unshare belongs to the namespace before it. */
	if (sys_chdir(path))
		jail_fail(err, "chdir", errno, "cannot enter the jail's tree");
	/* "." twice stacks the old root on the new one, so no directory is needed to put it in. */
	else if (sys_pivot_root(".", "."))
		jail_fail(err, "pivot_root", errno, "cannot make the jail the root");
	else if (sys_umount2(".", JAIL_MNT_DETACH))
		jail_fail(err, "umount2", errno, "cannot let go of the old root");
	else if (sys_chdir("/"))
		jail_fail(err, "chdir", errno, "cannot enter the new root");
	else
		return 0;
	return jail_error_at(err, NULL, 0, path);
}

int jail_namespace_branch(int *copy, struct jail_error *err)
{
	if (sys_unshare(CLONE_NEWNS))
		return jail_fail(err, "unshare", errno, "cannot copy the mount namespace");
	/* Now: after a pivot /proc is whatever the plan put there. */
	*copy = jail_namespace_open(err);
	return *copy < 0 ? -1 : 0;
}

int jail_namespace_leave(struct jail_home *home, struct jail_error *err)
{
	/* setns refuses a thread that shares its filesystem context, and threads that were started before
	 * keep theirs. */
	if (sys_unshare(CLONE_FS))
		return jail_fail(err, "unshare", errno, "cannot get a filesystem context of its own");
	home->namespace = jail_namespace_open(err);
	if (home->namespace < 0)
		return -1;
	/* setns puts us at the namespace's root; the daemon may have been chrooted elsewhere. */
	home->root = sys_open("/", O_PATH | O_DIRECTORY);
	home->cwd = sys_open(".", O_PATH | O_DIRECTORY);
	if (home->root < 0 || home->cwd < 0) {
		jail_fail(err, "open", errno, "cannot open / or the working directory");
		jail_home_close(home);
		return -1;
	}
	return 0;
}

int jail_namespace_return(struct jail_home *home, struct jail_error *err)
{
	int result = 0;

	if (sys_setns(home->namespace, CLONE_NEWNS) || sys_fchdir(home->root) || sys_chroot(".") ||
	    sys_fchdir(home->cwd))
		result = jail_fail(err, "setns", errno, "cannot come back to the node's own mount namespace");
	jail_home_close(home);
	return result;
}

int jail_namespace_count(int namespace)
{
	struct namespace_information information = { .size = sizeof(information) };
	uint64_t ids[COUNT_AT_ONCE];
	uint64_t last = 0;
	int count = 0;

	/* A list takes ten times as long. */
	if (!ioctl(namespace, MNT_NAMESPACE_INFORMATION, &information))
		return (int)information.mounts;
	for (;;) {
		int got = sys_listmount(last, ids, COUNT_AT_ONCE);
		if (got < 0)
			return -1;
		count += got;
		if (got < COUNT_AT_ONCE)
			return count;
		last = ids[got - 1];
	}
}

void jail_home_close(struct jail_home *home)
{
	jail_close(&home->namespace);
	jail_close(&home->root);
	jail_close(&home->cwd);
}

int jail_namespace_enter(int namespace, struct jail_error *err)
{
	if (sys_setns(namespace, CLONE_NEWNS))
		return jail_fail(err, "setns", errno, "cannot join the jail's namespace");
	return 0;
}

int jail_namespace_join(int namespace, struct jail_error *err)
{
	if (sys_unshare(CLONE_FS))
		return jail_fail(err, "unshare", errno, "cannot get a filesystem context of its own");
	return jail_namespace_enter(namespace, err);
}
