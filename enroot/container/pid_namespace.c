/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a container a PID namespace of its own, if a setting asks for one. root.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "container.h"
#include "native/container/refusal.h"

static volatile pid_t child;

/* A key of the terminal reaches the child by itself: it is of the same process group. */
static void forward(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code != SI_KERNEL)
		kill(child, number);
}

static void forward_signals(void)
{
	const struct sigaction action = { .sa_sigaction = forward, .sa_flags = SA_SIGINFO };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

/* In the project's jail clone3 is ENOSYS, for its flags lie where a filter cannot look; clone does as well. */
static pid_t fork_into(unsigned long flags)
{
	struct clone_args arguments = { .flags = flags, .exit_signal = SIGCHLD };
	pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof(arguments));

	if (pid < 0 && errno == ENOSYS)
		pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	return pid;
}

/* Ends as the child did, so that a shell sees the same. */
static void end_like(int status)
{
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	signal(WTERMSIG(status), SIG_DFL);
	kill(getpid(), WTERMSIG(status));
	_exit(128 + WTERMSIG(status));
}

static void wait_for_child(void)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			_exit(1);
	end_like(status);
}

int container_pid_namespace(struct container *container, struct jail_error *err)
{
	sigset_t both, before;
	int ends[2];

	if (!settings_true(container->settings, "ENROOT_UNSHARE_PID"))
		return 0;
	/* Until the handlers are there, a signal waits. */
	sigemptyset(&both);
	sigaddset(&both, SIGTERM);
	sigaddset(&both, SIGINT);
	sigprocmask(SIG_BLOCK, &both, &before);
	if (pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot make a PID namespace");
	pid_t pid = fork_into(CLONE_NEWPID);
	if (pid < 0)
		return refusal_explain("clone", errno, "/proc", err);
	if (pid) {
		/* ends[1] stays open: as long as this process lives. */
		close(ends[0]);
		child = pid;
		forward_signals();
		sigprocmask(SIG_SETMASK, &before, NULL);
		wait_for_child();
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(ends[1]);
	scoped_fd alive = ends[0];
	struct pollfd gone = { .fd = alive };
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return jail_fail(err, "prctl", errno, "cannot follow the parent's end");
	/* One that died before that; its number would not tell, it is 0 in here. */
	if (poll(&gone, 1, 0) > 0)
		_exit(1);
	return 0;
}
