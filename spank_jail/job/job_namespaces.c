/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the IPC namespace of a job's steps, and the PID namespace of a user's jobs on the node, as files in a
 * directory of theirs. job_mounts.c, enter_step.c and job_mount_namespaces.c call it. */
#define _GNU_SOURCE
#include "job_namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "native/mount/namespace.h"
#include "native/jail/pid_namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "job_directory.h"

/* The PID namespace of a user's jobs, and its init, which the epilog of the last of them ends. */
#define PIDS "pids"
#define INIT "init"

/* Linux 6.11: NS_GET_TGID_FROM_PIDNS, a process's number in the caller's namespace. */
#define INIT_OF_PID_NAMESPACE _IOR(0xb7, 7, int)

int jail_job_pin(int directory, const char *name, int namespace, struct jail_error *err)
{
	scoped_fd place = openat(directory, name, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	scoped_fd mount = place < 0 ? -1 : sys_open_tree(namespace, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);

	if (mount < 0)
		return jail_fail(err, place < 0 ? "openat" : "open_tree", errno, "cannot pin the job's namespace");
	return jail_job_attach(directory, name, mount, err);
}

int jail_job_ipc(int directory, struct jail_error *err)
{
	scoped_fd found = openat(directory, "ipc", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	/* And not the empty file that a pin lies on. */
	if (found >= 0 && ioctl(found, NS_GET_NSTYPE) == CLONE_NEWIPC)
		return jail_keep(&found);
	scoped_fd made = jail_namespace_new_ipc(err);
	if (made < 0 || jail_job_pin(directory, "ipc", made, err))
		return -1;
	return jail_keep(&made);
}

static bool read_init(int directory, struct jail_process *init)
{
	scoped_fd file = openat(directory, INIT, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return file >= 0 && read(file, init, sizeof(*init)) == sizeof(*init);
}

/* A pidfd of the init of the PID namespace, or -1: there is none, or it has ended. */
static int find_init(int directory)
{
	struct jail_process init;

	return read_init(directory, &init) ? jail_process_open(&init) : -1;
}

pid_t jail_user_init(uid_t user)
{
	struct jail_process init = { 0 };
	char path[64];

	snprintf(path, sizeof(path), JAIL_HOLDER "/user-%u", (unsigned)user);
	scoped_fd directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	scoped_fd process = directory >= 0 && read_init(directory, &init) ? jail_process_open(&init) : -1;
	return process >= 0 ? init.number : 0;
}

static int open_pids(int directory)
{
	scoped_fd found = openat(directory, PIDS, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return found >= 0 && ioctl(found, NS_GET_NSTYPE) == CLONE_NEWPID ? jail_keep(&found) : -1;
}

/* By its number here, where the kernel tells it: as long as the namespace lives, that number is nobody else's. */
static bool is_alive(int directory, int namespace)
{
	int number = ioctl(namespace, INIT_OF_PID_NAMESPACE, 1);
	bool unknown = number < 0 && errno != ESRCH;
	scoped_fd init = unknown ? find_init(directory) : (int)syscall(SYS_pidfd_open, number, 0);
	/* One that ended and was not waited for has its number still. find_init has looked. */
	struct pollfd ended = { .fd = init, .events = POLLIN };

	return init >= 0 && (unknown || !poll(&ended, 1, 0));
}

/* Init ends when all others have. What waits for a file system that it serves itself would be left, with its memory. */
static void wait_for_end(int init, pid_t number, uid_t user, jail_user_release *release)
{
	struct pollfd ended = { .fd = init, .events = POLLIN };

	for (int i = 0; i < JAIL_END_LOOKS && !poll(&ended, 1, JAIL_END_LOOK_MS); i++)
		release(number, user);
}

/* A namespace whose init has ended takes no more processes. Without `release` nobody waits for their end. */
static void end_pids(int directory, uid_t user, jail_user_release *release)
{
	struct jail_process noted = { 0 };
	scoped_fd namespace = open_pids(directory);
	scoped_fd init = read_init(directory, &noted) ? jail_process_open(&noted) : -1;

	if (init >= 0 && !syscall(SYS_pidfd_send_signal, init, SIGKILL, NULL, 0) && release)
		wait_for_end(init, noted.number, user, release);
	(void)unlinkat(directory, INIT, 0);
	if (namespace >= 0)
		(void)jail_job_detach(directory, PIDS);
}

int jail_user_leave(uint32_t job, uid_t user, jail_user_release *release, struct jail_error *err)
{
	char path[64];
	scoped_fd directory = jail_user_open(user, err);

	if (directory < 0)
		return -1;
	/* With the lock: a job that begins notes its user before it asks for the namespace. */
	if (jail_job_user_has_another(job, user))
		return 0;
	end_pids(directory, user, release);
	(void)unlinkat(directory, PIDS, 0);
	(void)unlinkat(directory, JAIL_USER_STEPS, 0);
	snprintf(path, sizeof(path), JAIL_HOLDER "/user-%u", (unsigned)user);
	return rmdir(path) ? jail_fail(err, "rmdir", errno, "cannot remove \"%s\"", path) : 0;
}

/* Out of the cgroup of the step that made it, which Slurm removes when the step ends: to where slurmstepd's own processes
 * are that belong to no step (cgroup/v2: SCOPE/system beside SCOPE/job_N). Elsewhere there is nothing to leave. */
static void leave_step(pid_t init)
{
	char text[PATH_MAX], path[PATH_MAX + 64];
	scoped_fd file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t got = file < 0 ? -1 : read(file, text, sizeof(text) - 1);

	text[got > 0 ? got : 0] = '\0';
	char *scope = strstr(text, "0::/"), *job = scope ? strstr(scope, "/job_") : NULL;
	if (!job || memchr(scope, '\n', (size_t)(job - scope)))
		return;
	*job = '\0';
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/system/cgroup.procs", scope + 3);
	scoped_fd processes = open(path, O_WRONLY | O_CLOEXEC);
	if (processes >= 0)
		(void)dprintf(processes, "%d", (int)init);
}

int jail_user_pids(uid_t user, const char *init, struct jail_error *err)
{
	struct jail_process process = { 0 };
	scoped_fd directory = jail_user_open(user, err);
	if (directory < 0)
		return -1;
	scoped_fd found = open_pids(directory);

	if (found >= 0 && is_alive(directory, found))
		return jail_keep(&found);
	end_pids(directory, user, NULL);
	scoped_fd program = jail_pid_program(init, err);
	if (program < 0)
		return -1;
	scoped_fd made = jail_pid_start_detached(program, &process.number, err);
	scoped_fd file = made < 0 ? -1 : openat(directory, INIT, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (made < 0)
		return -1;
	if (file < 0 || jail_process_note(&process) || write(file, &process, sizeof(process)) != sizeof(process))
		jail_fail(err, file < 0 ? "openat" : "write", errno, "cannot note the init of the job's PID namespace");
	else if (!jail_job_pin(directory, PIDS, made, err)) {
		leave_step(process.number);
		return jail_keep(&made);
	}
	(void)kill(process.number, SIGKILL);
	return -1;
}
