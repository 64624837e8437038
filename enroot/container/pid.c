#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "container.h"
#include "refusal.h"

static volatile pid_t child;

static void forward(int number)
{
	kill(child, number);
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
	const struct sigaction action = { .sa_handler = forward };
	int status;

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			_exit(1);
	end_like(status);
}

int container_pid_namespace(struct container *container, struct jail_error *err)
{
	sigset_t both, before;
	pid_t parent = getpid();

	if (!settings_true(container->settings, "ENROOT_UNSHARE_PID"))
		return 0;
	/* Until the handlers are there, a signal waits. */
	sigemptyset(&both);
	sigaddset(&both, SIGTERM);
	sigaddset(&both, SIGINT);
	sigprocmask(SIG_BLOCK, &both, &before);
	pid_t pid = fork_into(CLONE_NEWPID);
	if (pid < 0)
		return refusal_explain("clone", errno, "/proc", err);
	if (pid) {
		child = pid;
		const struct sigaction action = { .sa_handler = forward };
		sigaction(SIGTERM, &action, NULL);
		sigaction(SIGINT, &action, NULL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		wait_for_child();
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	/* In the namespace the parent is 0; a parent that died before now left us to init of the outer one. */
	(void)parent;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return jail_fail(err, "prctl", errno, "cannot follow the parent's end");
	return 0;
}
