/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a process of the user that saves and removes the container after the last task of a
 * step. pyxis/slurm calls it. */
#define _GNU_SOURCE
#include "step_cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/descriptor.h"
#include "native/base/scoped.h"
#include "descriptors.h"

/* Of the word that slurmstepd says; above them, which of the leftovers' jobs are over. */
#define COMPLETE 1u
#define OVER_SHIFT 1
_Static_assert(PYXIS_LEFTOVER_JOBS + OVER_SHIFT <= 8, "the word is a byte");

int pyxis_step_cleanup_prepare(struct pyxis_step_cleanup *cleanup, struct jail_error *err)
{
	if (!pipe2(cleanup->life, O_CLOEXEC) && !pipe2(cleanup->order, O_CLOEXEC) &&
	    !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, cleanup->done))
		return 0;
	jail_fail(err, "pipe2", errno, "cannot prepare the end of the step's container");
	pyxis_step_cleanup_leave(cleanup);
	return -1;
}

void pyxis_step_cleanup_leave(struct pyxis_step_cleanup *cleanup)
{
	for (int i = 0; i < 2; i++) {
		jail_close(&cleanup->life[i]);
		jail_close(&cleanup->order[i]);
		jail_close(&cleanup->done[i]);
	}
}

/* A byte, and with it a descriptor of this process: a number would be another's in another PID namespace. */
static void hand_over(int done)
{
	scoped_fd self = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (self >= 0)
		(void)jail_descriptor_send(done, self, "", 1);
}

/* What hand_over sent. Returns whether `done` goes on. */
static bool take_over(int done, int *process)
{
	char byte = 0;
	int given;
	ssize_t got = jail_descriptor_receive(done, &given, &byte, 1);

	if (given >= 0) {
		jail_close(process);
		*process = given;
	}
	return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

static void ignore_signals(void)
{
	for (int number = 1; number < NSIG; number++)
		signal(number, number == SIGCHLD ? SIG_DFL : SIG_IGN);
}

static _Noreturn void keep(struct pyxis_step_cleanup *cleanup, struct pyxis_container *container)
{
	const int kept[] = { cleanup->order[0], cleanup->done[1], container->log };
	unsigned char word = 0;
	ssize_t got;

	ignore_signals();
	prctl(PR_SET_NAME, "pyxis-keeper");
	/* It is a fork of slurmstepd, and stays one: nobody looks into its memory, and of slurmstepd's sockets, pipes and
	 * files it has none. Nor has it its end of `order`, or it would wait for itself. */
	prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
	descriptors_close_but(kept, sizeof(kept) / sizeof(kept[0]));
	/* The task's output ends with the task; its error output takes what is said here. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	jail_close(&null);
	hand_over(cleanup->done[1]);
	do
		got = read(cleanup->order[0], &word, 1);
	while (got < 0 && errno == EINTR);
	pyxis_container_close(container, (struct pyxis_outcome){ word & COMPLETE, word >> OVER_SHIFT });
	_exit(0);
}

int pyxis_step_cleanup_start(struct pyxis_step_cleanup *cleanup, struct pyxis_container *container, struct jail_error *err)
{
	pid_t pid = fork();

	if (pid < 0)
		return jail_fail(err, "fork", errno, "cannot prepare the end of the step's container");
	if (!pid) {
		setsid();
		/* Nobody's child, or a task that waits for all of its own would wait for it. */
		if (fork())
			_exit(0);
		keep(cleanup, container);
	}
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return 0;
}

/* A child of slurmstepd that does nothing, so that Slurm kills it where it kills the step. Proctrack/linuxproc finds
 * what descends from slurmstepd; the keeper, whom a user may stop, does not. By the bare call: forks of slurmstepd are
 * led into the jail, and this one has no more to do there than outside. */
static pid_t start_canary(void)
{
	pid_t self = getpid(), pid = (pid_t)syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL);

	if (pid)
		return pid;
	ignore_signals();
	/* It kills by name, too: none that is called as slurmstepd is. */
	prctl(PR_SET_NAME, "pyxis-waits");
	prctl(PR_SET_DUMPABLE, 0UL, 0UL, 0UL, 0UL);
	descriptors_close_but(NULL, 0);
	if (!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == self)
		for (;;)
			pause();
	_exit(0);
}

/* Until the keeper has ended, or the step is killed. */
static void wait_for_cleanup(int done)
{
	scoped_fd process = -1;
	pid_t canary = start_canary();
	scoped_fd alive = canary < 0 ? -1 : (int)syscall(SYS_pidfd_open, canary, 0);
	struct pollfd wait[] = { { .fd = done, .events = POLLIN }, { .fd = alive, .events = POLLIN } };
	bool goes_on = true;

	while (goes_on && (poll(wait, 2, -1) >= 0 || errno == EINTR)) {
		if (wait[0].revents)
			goes_on = take_over(done, &process);
		if (!goes_on || !wait[1].revents)
			continue;
		/* The program that it runs dies with it. */
		(void)take_over(done, &process);
		if (process >= 0)
			syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
		break;
	}
	if (canary < 0)
		return;
	kill(canary, SIGKILL);
	while (waitpid(canary, NULL, __WALL) < 0 && errno == EINTR)
		continue;
}

void pyxis_step_cleanup_finish(struct pyxis_step_cleanup *cleanup, struct pyxis_outcome outcome)
{
	const unsigned char word = (unsigned char)((outcome.complete ? COMPLETE : 0) | outcome.over << OVER_SHIFT);

	/* The container's own process ends. */
	jail_close(&cleanup->life[0]);
	jail_close(&cleanup->life[1]);
	jail_close(&cleanup->done[1]);
	/* Its reading end is open here: without a keeper the word is lost, and no signal comes. */
	if (cleanup->order[1] >= 0 && write(cleanup->order[1], &word, 1) == 1)
		wait_for_cleanup(cleanup->done[0]);
	pyxis_step_cleanup_leave(cleanup);
}
