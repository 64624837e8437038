/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that whoever ends a step may leave alone, or wait for. They end by themselves after a while. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"

#define STAYS_S 300

static void be_deaf(void)
{
	const int signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_IGN);
}

static _Noreturn void stay(void)
{
	printf("stays\n");
	fflush(stdout);
	sleep(STAYS_S);
	_exit(0);
}

static void called_slurmstepd(void)
{
	be_deaf();
	prctl(PR_SET_NAME, "slurmstepd");
	stay();
}

static void called_with_fields(void)
{
	be_deaf();
	prctl(PR_SET_NAME, "a) S 1 1 1 (");
	stay();
}

static void *stay_thread(void *unused)
{
	(void)unused;
	usleep(200000); /* for its leader to be dead */
	stay();
}

/* The kernel then says of the process that it is dead. */
static void dead_leader(void)
{
	pthread_t thread;

	be_deaf();
	if (pthread_create(&thread, NULL, stay_thread, NULL))
		broken("pthread_create");
	syscall(SYS_exit, 0);
}

static void keep(long options)
{
	be_deaf();
	if (ptrace(PTRACE_SEIZE, (pid_t)given_number("TRACED"), NULL, options))
		held("trace process %ld", given_number("TRACED"));
	stay();
}

/* Whoever traces it hears first that it ended, and tells nobody. */
static void keep_traced(void)
{
	keep(0);
}

/* It stops on its way out, where no signal ends it any more. */
static void keep_exiting(void)
{
	keep(PTRACE_O_TRACEEXIT);
}

const struct attack ending_attacks[] = {
	{ "called-slurmstepd", called_slurmstepd },
	{ "called-with-fields", called_with_fields },
	{ "dead-leader", dead_leader },
	{ "keep-traced", keep_traced },
	{ "keep-exiting", keep_exiting },
	{ NULL, NULL },
};
