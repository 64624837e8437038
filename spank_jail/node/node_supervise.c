/* SPDX-License-Identifier: Apache-2.0 */
/* node-supervise: runs a daemon of a node, such as slurmd, and starts it again when it fails. The images' entrypoint
 * runs it.
 *
 * Users can make daemons end: slurmd when their processes leave it no thread, slurmd and slurmctld by forged requests
 * (null pointers in Slurm 24.11). Jobs live on, and the new slurmd finds them, but only if the container does not end
 * with its daemon. It reaps no orphans: init does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/base/clock.h"

#define PROGRAM "node-supervise"
#define FIRST_WAIT_MS 200L
#define LONGEST_WAIT_MS 5000L
/* Between two lines that say that no process can be had. */
#define SAY_EVERY_MS 10000L

enum { STATUS_USAGE = 2, STATUS_NOT_EXECUTABLE = 126, STATUS_NOT_FOUND = 127, STATUS_SIGNAL = 128 };

static const char usage_text[] =
	"usage: node-supervise [OPTIONS] [--] COMMAND [ARGS...]\n"
	"\n"
	"Runs COMMAND, passes SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 on to it, and starts it again when it\n"
	"ends with a failure or by a signal. Ends with it when it ends with 0, or after SIGTERM or SIGINT.\n"
	"\n"
	"  --stable MS   how long COMMAND runs that works (default 10000)\n"
	"  --tries N     give up when the first N all end before that, the last with a status: its configuration\n"
	"                is wrong (default 5)\n"
	"  --help        this text\n"
	"\n"
	"Exit status: that of COMMAND, 128 and its number for a signal; 2 wrong usage.\n";

struct daemon {
	char **command;
	const char *name;
	long stable_ms, tries;
	pid_t pid;   /* 0: it does not run */
	bool asked;  /* to end */
	bool proven; /* has once run for stable_ms */
	long failures; /* since then, without a break */
};

static sigset_t watched(void)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&set, signals[i]);
	return set;
}

/* Waits for a signal, `ms` at most, or for ever when that is negative, and passes it on. Returns its number; 0: none. */
static int next_signal(struct daemon *daemon, long ms)
{
	const sigset_t set = watched();
	const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
	int signal = ms < 0 ? sigwaitinfo(&set, NULL) : sigtimedwait(&set, NULL, &time);

	if (signal <= 0)
		return 0;
	if (signal == SIGTERM || signal == SIGINT)
		daemon->asked = true;
	if (signal != SIGCHLD && daemon->pid)
		kill(daemon->pid, signal);
	return signal;
}

/* Until the time is over or the end is asked for. */
static void pause_ms(struct daemon *daemon, long ms)
{
	long end = clock_ms() + ms;

	for (long left = ms; left > 0 && !daemon->asked; left = end - clock_ms())
		next_signal(daemon, left);
}

static _Noreturn void become(char **command)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(command[0], command);
	fprintf(stderr, PROGRAM ": %s: cannot be run: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE);
}

/* Tries for ever: there is no process to be had while a user's programs hold them all. */
static void start(struct daemon *daemon)
{
	long said_at = 0;

	while (!daemon->asked) {
		pid_t pid = fork();
		if (!pid)
			become(daemon->command);
		if (pid > 0) {
			daemon->pid = pid;
			return;
		}
		if (!said_at || clock_ms() - said_at >= SAY_EVERY_MS) {
			fprintf(stderr, PROGRAM ": %s: no process can be started: %s; trying again\n", daemon->name,
				strerror(errno));
			said_at = clock_ms();
		}
		pause_ms(daemon, FIRST_WAIT_MS);
	}
}

/* Children that the shell left which became this program are waited for as well, so that they are not left as zombies. */
static bool reap(struct daemon *daemon, int *status)
{
	bool ended = false;
	int one;

	for (pid_t pid; (pid = waitpid(-1, &one, WNOHANG)) > 0;)
		if (pid == daemon->pid) {
			*status = one;
			daemon->pid = 0;
			ended = true;
		}
	return ended;
}

static int run(struct daemon *daemon)
{
	int status = 0;

	while (!reap(daemon, &status))
		next_signal(daemon, -1);
	return status;
}

static int exit_status(int status)
{
	return WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* 0.2 s, and twice as long each time that it fails at once. */
static long wait_after(long failures)
{
	long ms = FIRST_WAIT_MS;

	while (--failures > 0 && ms < LONGEST_WAIT_MS)
		ms *= 2;
	return ms < LONGEST_WAIT_MS ? ms : LONGEST_WAIT_MS;
}

static void say_end(const struct daemon *daemon, int status, long ran_ms, const char *then)
{
	fprintf(stderr, PROGRAM ": %s ended %s %d after %.1f s; %s\n", daemon->name,
		WIFSIGNALED(status) ? "by signal" : "with status", exit_status(status) % STATUS_SIGNAL,
		(double)ran_ms / 1000.0, then);
}

static int supervise(struct daemon *daemon)
{
	char then[80];

	for (;;) {
		start(daemon);
		if (!daemon->pid)
			return 0;
		long started = clock_ms();
		int status = run(daemon);
		long ran_ms = clock_ms() - started;
		if (daemon->asked || !exit_status(status))
			return exit_status(status);
		daemon->proven = daemon->proven || ran_ms >= daemon->stable_ms;
		daemon->failures = ran_ms >= daemon->stable_ms ? 1 : daemon->failures + 1;
		/* A wrong configuration is told, and ends with a status; a signal is a fault, which users may bring about. */
		if (!daemon->proven && daemon->failures >= daemon->tries && !WIFSIGNALED(status)) {
			say_end(daemon, status, ran_ms, "it never ran for long; correct what its messages name");
			return exit_status(status);
		}
		long wait = wait_after(daemon->failures);
		snprintf(then, sizeof(then), "it is started again in %.1f s", (double)wait / 1000.0);
		say_end(daemon, status, ran_ms, then);
		pause_ms(daemon, wait);
	}
}

static int usage_error(const char *what)
{
	fprintf(stderr, PROGRAM ": %s; see " PROGRAM " --help\n", what);
	return STATUS_USAGE;
}

static bool parse_positive(const char *text, long *number)
{
	char *end;

	errno = 0;
	*number = strtol(text, &end, 10);
	return !errno && end != text && !*end && *number > 0 && *number <= 1000000000L;
}

/* -1: go on, else the exit status. */
static int parse_arguments(int argc, char **argv, struct daemon *daemon)
{
	static const struct option options[] = {
		{ "stable", required_argument, NULL, 's' },
		{ "tries", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		if (option == 'h') {
			fputs(usage_text, stdout);
			return 0;
		}
		if (option == '?' || !parse_positive(optarg, option == 's' ? &daemon->stable_ms : &daemon->tries))
			return usage_error(option == '?' ? "wrong option" : "--stable and --tries take a number above 0");
	}
	if (optind == argc)
		return usage_error("COMMAND is missing");
	daemon->command = argv + optind;
	const char *slash = strrchr(daemon->command[0], '/');
	daemon->name = slash ? slash + 1 : daemon->command[0];
	return -1;
}

int main(int argc, char **argv)
{
	struct daemon daemon = { .stable_ms = 10000, .tries = 5 };
	int status = parse_arguments(argc, argv, &daemon);
	const sigset_t set = watched();

	if (status >= 0)
		return status;
	sigprocmask(SIG_BLOCK, &set, NULL);
	return supervise(&daemon);
}
