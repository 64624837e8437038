#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../core/namespace.h"
#include "../core/sys.h"
#include "../core/window.h"

/* Opening files takes less than this many seconds, so usually nobody asks. Then slurmctld is asked at this interval. */
#define ASK_EVERY_S 2
/* Slurm tries an open ten times when it is interrupted. */
#define INTERRUPT_EVERY_MS 20
/* As often as that makes sense: who goes on has more to open, or has given up and reports it. */
#define MOST_INTERRUPTS 200
/* While squeue answers. */
#define LOOK_EVERY_MS 20

/* Of no use to Slurm, and to no library that it loads. */
#define WAKE (SIGRTMIN + 9)

/* One step a process. */
static struct {
	pthread_t thread, watched;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool started, over;
	uint32_t job;
	int home;
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void wake(int signal)
{
	(void)signal;
}

/* Whether the window was left within `ms`. */
static bool is_over_within(long ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&watch.lock);
	while (!watch.over && !pthread_cond_timedwait(&watch.changed, &watch.lock, &until))
		;
	bool over = watch.over;
	pthread_mutex_unlock(&watch.lock);
	return over;
}

/* Reads what `pid` prints until it ends, or until the window is left; then it is ended. Returns the length. */
static size_t read_all(int from, pid_t pid, char *text, size_t size)
{
	struct pollfd ready = { .fd = from, .events = POLLIN };
	size_t used = 0;

	while (used < size - 1 && !is_over_within(0)) {
		if (!poll(&ready, 1, LOOK_EVERY_MS))
			continue;
		ssize_t got = read(from, text + used, size - 1 - used);
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	text[used] = '\0';
	return used;
}

/* What squeue prints of the job; "" where it cannot be asked. A program, because Slurm's library refuses to
 * authenticate, and waits, while slurmstepd is the user for the opening of his files. */
static void ask(char *text, size_t size)
{
	/* The number and the state, and nothing that a user chose, as the job's name. */
	char program[] = "squeue", bare[] = "--noheader", all[] = "--states=all", format[] = "--format=%A %T", job[32];
	char *const argv[] = { program, bare, all, format, job, NULL };
	posix_spawn_file_actions_t actions;
	int ends[2];
	pid_t pid;

	text[0] = '\0';
	snprintf(job, sizeof(job), "--jobs=%u", watch.job);
	if (pipe2(ends, O_CLOEXEC))
		return;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	int number = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (!number)
		(void)read_all(ends[0], pid, text, size);
	close(ends[0]);
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

static void *look_on(void *unused)
{
	struct jail_error ignored;
	bool is_home = false;

	(void)unused;
	while (!is_over_within(ASK_EVERY_S * 1000L)) {
		/* A filesystem context of its own: slurmctld is asked from outside, while the watched thread stays inside. Slurm
		 * may have made all threads the user's. */
		if (!is_home && ((geteuid() && sys_thread_seteuid(0)) || jail_window_regain(&ignored) ||
				 jail_namespace_join(watch.home, &ignored)))
			return NULL;
		is_home = true;
		for (int i = 0, end = is_to_end() ? MOST_INTERRUPTS : 0; i < end; i++) {
			if (is_over_within(INTERRUPT_EVERY_MS))
				return NULL;
			pthread_kill(watch.watched, WAKE);
		}
	}
	return NULL;
}

static int prepare(struct jail_error *err)
{
	/* Without SA_RESTART: the interrupted call is to fail. */
	const struct sigaction action = { .sa_handler = wake };
	pthread_condattr_t attributes;
	sigset_t own;

	sigemptyset(&own);
	sigaddset(&own, WAKE);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&watch.changed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (sigaction(WAKE, &action, NULL))
		return jail_fail(err, "sigaction", errno, "cannot prepare the watch over the opening of files");
	pthread_sigmask(SIG_UNBLOCK, &own, NULL);
	return 0;
}

int jail_watch_start(uint32_t job, int home, struct jail_error *err)
{
	sigset_t all, before;

	if (prepare(err))
		return -1;
	watch.job = job;
	watch.home = home;
	watch.watched = pthread_self();
	/* Slurm's signals go to Slurm's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int number = pthread_create(&watch.thread, NULL, look_on, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (number)
		return jail_fail(err, "pthread_create", number, "cannot watch over the opening of the job's files");
	watch.started = true;
	return 0;
}

void jail_watch_stop(void)
{
	if (!watch.started)
		return;
	pthread_mutex_lock(&watch.lock);
	watch.over = true;
	pthread_cond_signal(&watch.changed);
	pthread_mutex_unlock(&watch.lock);
	pthread_join(watch.thread, NULL);
	watch.started = false;
}
