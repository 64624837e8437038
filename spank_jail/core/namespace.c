#define _GNU_SOURCE
#include "namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "scoped.h"
#include "sys.h"

/* The calling thread's, which in slurmstepd need not be that of /proc/self. */
#define OWN_NAMESPACE "/proc/thread-self/ns/mnt"

/* Linux 6.9 and 6.11; numbers of the kernel's interface, which headers of older systems lack. */
#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL
#endif
#ifndef PIDFD_GET_MNT_NAMESPACE
#define PIDFD_GET_MNT_NAMESPACE _IO(0xFF, 3)
#endif

/* A descriptor of the calling thread's mount namespace, or -1. By pidfd where the kernel can: the first
 * look into /proc/PID/task/TID costs a new process 0.15 ms, a tenth of what a step takes here. */
static int own_namespace(void)
{
	scoped_fd self = (int)syscall(SYS_pidfd_open, (pid_t)syscall(SYS_gettid), PIDFD_THREAD);
	int namespace = self < 0 ? -1 : ioctl(self, PIDFD_GET_MNT_NAMESPACE, 0);

	return namespace < 0 ? sys_open(OWN_NAMESPACE, O_RDONLY) : namespace;
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

static int pivoted_copy(const char *path, int (*prepare)(void *, struct jail_error *), void *context,
			struct jail_error *err)
{
	if (sys_unshare(CLONE_NEWNS))
		return jail_fail(err, "unshare", errno, "cannot make the tasks' mount namespace");
	/* Now: after the pivot /proc is whatever the plan put there. */
	scoped_fd copy = own_namespace();
	if (copy < 0)
		return jail_fail(err, "open", errno, "cannot open " OWN_NAMESPACE "; is /proc mounted?");
	if (prepare && (sys_chdir(path) ? jail_fail(err, "chdir", errno, "cannot enter the jail's tree")
					: prepare(context, err)))
		return jail_error_at(err, NULL, 0, path);
	if (jail_namespace_pivot(path, err))
		return -1;
	return jail_keep(&copy);
}

int jail_namespace_pivoted(const char *path, int (*prepare)(void *, struct jail_error *), void *context,
			   struct jail_error *err)
{
	struct jail_error back;
	scoped_fd home = own_namespace();
	/* setns puts us at the namespace's root; the daemon may have been chrooted elsewhere. */
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);
	scoped_fd cwd = sys_open(".", O_PATH | O_DIRECTORY);

	if (home < 0 || root < 0)
		return jail_fail(err, "open", errno, "cannot open " OWN_NAMESPACE " or /; is /proc mounted?");
	scoped_fd copy = pivoted_copy(path, prepare, context, err);
	if (sys_setns(home, CLONE_NEWNS) || sys_fchdir(root) || sys_chroot(".") || (cwd >= 0 && sys_fchdir(cwd))) {
		jail_fail(&back, "setns", errno, "cannot come back from the jail's namespace");
		*err = back;
		return -1;
	}
	return jail_keep(&copy);
}

int jail_namespace_join(int namespace, struct jail_error *err)
{
	if (sys_unshare(CLONE_FS))
		return jail_fail(err, "unshare", errno, "cannot get a filesystem context of its own");
	if (sys_setns(namespace, CLONE_NEWNS))
		return jail_fail(err, "setns", errno, "cannot join the jail's namespace");
	return 0;
}
