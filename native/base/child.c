/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a process that shares the memory of the daemon that calls. It does what a thread of that daemon cannot do,
 * such as entering another mount namespace. native/jail calls it. */
#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scoped.h"

/* For applying a few lines of a plan: names of PATH_MAX bytes, some at a time. Pages not used cost nothing. */
#define STACK_SIZE (256 * 1024)

/* In milliseconds. What is run takes one. */
#define LONGEST 2000

/* Waits for its end. Whether it came by itself. */
static bool reap(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status);
}

/* Whether the process ended by itself; one that takes too long is ended. */
static bool wait_for(pid_t pid)
{
	scoped_fd process = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = { .fd = process, .events = POLLIN };

	if (process >= 0 && poll(&ended, 1, LONGEST) < 1)
		(void)syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
	return reap(pid);
}

static int check_end(pid_t pid, int number, bool ended, struct jail_error *err)
{
	if (pid < 0)
		return jail_fail(err, "clone", number, "cannot start a process");
	return ended ? 0 : jail_fail(err, "clone", EAGAIN, "a process that was to help was ended or stopped");
}

int jail_child_run(int (*work)(void *argument), void *argument, int flags, struct jail_error *err)
{
	sigset_t all, before;
	char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		return jail_fail(err, "mmap", errno, "not enough memory to start a process");
	/* Both use the one errno, so this thread makes no call that may fail while the other is running, and no signal
	 * handler does. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t pid = clone(work, stack + STACK_SIZE, CLONE_VM | flags, argument);
	int number = errno;
	bool ended = pid > 0 && wait_for(pid);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	munmap(stack, STACK_SIZE);
	return check_end(pid, number, ended, err);
}

pid_t jail_child_start(int (*work)(void *argument), void *argument, int flags, struct jail_error *err)
{
	sigset_t all, before;
	char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

	if (stack == MAP_FAILED)
		return jail_fail(err, "mmap", errno, "not enough memory to start a process");
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t pid = clone(work, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | flags, argument);
	int number = errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	munmap(stack, STACK_SIZE);
	return pid < 0 ? jail_fail(err, "clone", number, "cannot start a process") : pid;
}
