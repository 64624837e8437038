/* SPDX-License-Identifier: Apache-2.0 */
/* Forks a child and lets the parent stand in for it: it passes signals on, and ends with the child's status.
 * So who started the parent sees the child's behaviour although that is in another PID namespace.
 * spank_jail/enter calls it. */
#define _GNU_SOURCE
#include "signal_proxy.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* As the child did, but without a second core file. */
static _Noreturn void end_by(int number)
{
	const struct rlimit none = { 0, 0 };
	sigset_t one;

	setrlimit(RLIMIT_CORE, &none);
	signal(number, SIG_DFL);
	sigemptyset(&one);
	sigaddset(&one, number);
	raise(number);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	/* Not reached: the child cannot have ended by a signal that does not end us. */
	_exit(128 + number);
}

static void look_at(pid_t child)
{
	int status;

	while (waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
		if (WIFEXITED(status))
			_exit(WEXITSTATUS(status));
		if (WIFSIGNALED(status))
			end_by(WTERMSIG(status));
		/* Our own parent, a shell with job control, sees that, and continues us. */
		if (WIFSTOPPED(status))
			raise(SIGSTOP);
	}
}

/* What the terminal sends, the child gets from it as well. */
static bool is_for_us_alone(const siginfo_t *info)
{
	return info->si_code <= 0 && info->si_signo != SIGTSTP && info->si_signo != SIGTTIN && info->si_signo != SIGTTOU;
}

static _Noreturn void stand_for(pid_t child, const sigset_t *all)
{
	siginfo_t info;

	for (;;) {
		int number = sigwaitinfo(all, &info);
		if (number == SIGCHLD)
			look_at(child);
		else if (number == SIGCONT || (number > 0 && is_for_us_alone(&info)))
			(void)kill(child, number);
	}
}

int jail_signal_proxy_fork(struct jail_error *err)
{
	sigset_t all, before;

	/* Before the fork: nothing that is sent from now on may end us and leave the child. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid_t child = fork();
	int number = errno;
	if (child > 0)
		stand_for(child, &all);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return child < 0 ? jail_fail(err, "fork", number, "cannot start a process in the jail") : 0;
}
