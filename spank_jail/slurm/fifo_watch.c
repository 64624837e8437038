/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts slurmstepd while it waits for a user's FIFO, once the job is to end. plugin.c calls it. */
#define _GNU_SOURCE
#include "fifo_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/mount/namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/mount/chroot_window.h"

/* Opening files takes less than this many seconds, so usually nobody asks. Then slurmctld is asked at this interval. */
#define ASK_EVERY_S 2
/* Slurm tries an open ten times when it is interrupted. */
#define INTERRUPT_EVERY_MS 20
/* As often as that makes sense: who goes on has more to open, or has given up and reports it. */
#define MOST_INTERRUPTS 200

/* Of no use to Slurm, and to no library that it loads. */
#define BEGIN (SIGRTMIN + 8)
#define WAKE (SIGRTMIN + 9)

/* Older headers name the member otherwise; timer_create(2). */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* One step a process. */
static struct {
	timer_t timer;
	volatile sig_atomic_t started;
	volatile sig_atomic_t watcher; /* its process, or 0 */
	pid_t process, thread;	       /* that are watched */
	uint32_t job;
	int home;
} watch;

static void wake(int signal)
{
	(void)signal;
}

/* fork(2) for a signal handler: fork(3) takes locks, and calls handlers of libraries. */
static pid_t fork_quietly(int signal)
{
	return (pid_t)syscall(SYS_clone, (unsigned long)signal, NULL, NULL, NULL, 0UL);
}

static _Noreturn void execute_squeue(int output)
{
	/* The number and the state, and nothing that a user chose, as the job's name. */
	char program[] = "squeue", bare[] = "--noheader", all[] = "--states=all", format[] = "--format=%A %T", job[32];
	char *const argv[] = { program, bare, all, format, job, NULL };
	int null = open("/dev/null", O_RDWR);

	snprintf(job, sizeof(job), "--jobs=%u", watch.job);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (null >= 0 && dup2(null, 0) >= 0 && dup2(output, 1) >= 0 && dup2(null, 2) >= 0)
		(void)execvp(program, argv);
	_exit(127);
}

/* What squeue prints of the job; "" where it cannot be asked. A program, because Slurm's library refuses to
 * authenticate, and waits, while slurmstepd is the user for the opening of his files. */
static void ask(char *text, size_t size)
{
	size_t used = 0;
	ssize_t got = 1;
	int ends[2];

	text[0] = '\0';
	if (pipe2(ends, O_CLOEXEC))
		return;
	pid_t pid = fork_quietly(SIGCHLD);
	if (!pid)
		execute_squeue(ends[1]);
	close(ends[1]);
	while (pid > 0 && used < size - 1 && got > 0) {
		got = read(ends[0], text + used, size - 1 - used);
		used += got > 0 ? (size_t)got : 0;
	}
	close(ends[0]);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	text[used] = '\0';
}

/* Whether slurmctld says that the job has ended or is ending: cancelled, out of time, requeued. */
static bool is_to_end(void)
{
	static const char *const going_on[] = { "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING" };
	char text[4096], own[16];
	char *rest = text, *line;

	ask(text, sizeof(text));
	snprintf(own, sizeof(own), "%u ", watch.job);
	/* One line for each task of an array, and each part of a heterogeneous job. */
	while ((line = strsep(&rest, "\n"))) {
		if (strncmp(line, own, strlen(own)))
			continue;
		for (size_t i = 0; i < sizeof(going_on) / sizeof(going_on[0]); i++)
			if (!strcmp(line + strlen(own), going_on[i]))
				return false;
		return true;
	}
	return false;
}

static void wait_ms(long ms)
{
	const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	(void)nanosleep(&time, NULL);
}

/* The watching process. It is ended when the window is left, or with slurmstepd. It comes from a signal handler, in a
 * process of many threads, and so calls nothing that takes locks. */
static _Noreturn void look_on(void)
{
	struct jail_error ignored;

	/* slurmctld is asked from outside. slurmstepd may be the user. */
	if ((geteuid() && sys_thread_seteuid(0)) || jail_window_regain(&ignored) ||
	    jail_namespace_join(watch.home, &ignored) ||
	    /* Now: a change of user takes it back. */
	    prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != watch.process)
		_exit(1);
	for (;; wait_ms(ASK_EVERY_S * 1000L))
		for (int i = 0, end = is_to_end() ? MOST_INTERRUPTS : 0; i < end; i++) {
			(void)syscall(SYS_tgkill, watch.process, watch.thread, WAKE);
			wait_ms(INTERRUPT_EVERY_MS);
		}
}

static void set_timer(long seconds)
{
	const struct itimerspec times = { .it_interval.tv_sec = seconds, .it_value.tv_sec = seconds };

	(void)timer_settime(watch.timer, 0, &times, NULL);
}

/* In the watched thread. */
static void begin(int signal)
{
	int number = errno;

	(void)signal;
	if (watch.started && !watch.watcher) {
		/* Its end is no child's to Slurm, which waits for whatever child has ended. */
		pid_t pid = fork_quietly(0);
		if (!pid)
			look_on();
		if (pid > 0) {
			watch.watcher = pid;
			set_timer(0);
		}
	}
	errno = number;
}

static int handle(int signal, void (*handler)(int), int flags, sigset_t *handled)
{
	const struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	sigaddset(handled, signal);
	return sigaction(signal, &action, NULL);
}

int jail_watch_start(uint32_t job, int home, struct jail_error *err)
{
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = BEGIN };
	sigset_t handled;

	watch.job = job;
	watch.home = home;
	watch.process = getpid();
	watch.thread = event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	sigemptyset(&handled);
	/* WAKE without SA_RESTART: the interrupted call is to fail. */
	if (handle(BEGIN, begin, SA_RESTART, &handled) || handle(WAKE, wake, 0, &handled))
		return jail_fail(err, "sigaction", errno, "cannot prepare the watch over the opening of files");
	if (timer_create(CLOCK_MONOTONIC, &event, &watch.timer))
		return jail_fail(err, "timer_create", errno, "cannot watch over the opening of the job's files");
	watch.started = true;
	pthread_sigmask(SIG_UNBLOCK, &handled, NULL);
	set_timer(ASK_EVERY_S);
	return 0;
}

void jail_watch_stop(void)
{
	if (!watch.started)
		return;
	watch.started = false;
	timer_delete(watch.timer);
	if (!watch.watcher)
		return;
	(void)kill(watch.watcher, SIGKILL);
	while (waitpid(watch.watcher, NULL, __WALL) < 0 && errno == EINTR)
		;
	watch.watcher = 0;
}
