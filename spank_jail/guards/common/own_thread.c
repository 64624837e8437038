/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a thread in slurmd or slurmctld for a guard that works in the background. All signals are
 * blocked in it, so that the daemon's own threads get them. host_names.c, stuck_children.c, state_saves.c
 * and unsent_records.c call it. */
#define _GNU_SOURCE
#include "own_thread.h"

#include <pthread.h>
#include <signal.h>

int jail_own_thread_start(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int number = pthread_create(&thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!number)
		(void)pthread_detach(thread);
	return number;
}
