#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

/* For applying a few lines of a plan: names of PATH_MAX bytes, some at a time. Pages not used cost nothing. */
#define STACK_SIZE (256 * 1024)

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
