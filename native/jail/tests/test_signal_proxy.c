/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the parent of a signal proxy sees the stop, the signal and the exit status of the proxy's child. */
#define _GNU_SOURCE
#include "native/jail/signal_proxy.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/testing/check.h"

/* A process that mirrors a child which does `work`. */
static pid_t start(void (*work)(void))
{
	struct jail_error err;
	pid_t pid = fork();

	if (pid)
		return pid;
	if (jail_signal_proxy_fork(&err))
		_exit(125);
	work();
	_exit(0);
}

static int end_of(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid ? status : -1;
}

static void exit_3(void)
{
	_exit(3);
}

static void crash(void)
{
	raise(SIGSEGV);
}

static void end_by_kill(void)
{
	raise(SIGKILL);
}

static int ready[2];

static void on_usr1(int number)
{
	(void)number;
	_exit(42);
}

static void wait_for_usr1(void)
{
	signal(SIGUSR1, on_usr1);
	(void)!write(ready[1], "", 1);
	for (;;)
		pause();
}

static void stop_then_exit(void)
{
	raise(SIGSTOP);
	_exit(7);
}

static void wait_ready(void)
{
	char byte;

	CHECK(read(ready[0], &byte, 1) == 1);
}

int main(void)
{
	int status = end_of(start(exit_3));

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
	status = end_of(start(crash));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV && !WCOREDUMP(status));
	status = end_of(start(end_by_kill));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

	CHECK(!pipe(ready));
	pid_t pid = start(wait_for_usr1);
	wait_ready();
	kill(pid, SIGUSR1);
	status = end_of(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);

	pid = start(wait_for_usr1);
	wait_ready();
	kill(pid, SIGTERM);
	status = end_of(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);

	pid = start(stop_then_exit);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	kill(pid, SIGCONT);
	status = end_of(pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return check_result("signal_proxy");
}
