/* SPDX-License-Identifier: Apache-2.0 */
/* Makes forged requests to launch a step harmless: they no longer drain the node, leave waiting slurmstepds behind,
 * or fill slurmd's memory. guards.c calls it. */
#define _GNU_SOURCE
#include "launches.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/node_names.h"

/* slurmd waits for an announcement second by second, for two minutes by default (MessageTimeout). One that comes takes less. */
#define IN_VAIN_S 5
/* It gives up and tells slurmctld in one go. */
#define AT_ONCE_S 2

/* Slurm's own; releases differ in what the second parameter is. */
static int (*send_to_controller)(void *request, void *answer, void *cluster);
static int (*send_mpi)(int stepd, void *plugin);

/* This thread's waits for one condition of which none came true, in seconds of CLOCK_MONOTONIC. */
static _Thread_local struct {
	const pthread_cond_t *condition;
	time_t since, until;
} vain;

/* In place of pthread_cond_timedwait(3) in slurmd. */
static int wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline)
{
	time_t begin = clock_s();
	int number = pthread_cond_timedwait(condition, mutex, deadline);

	if (number != ETIMEDOUT) {
		vain.condition = NULL;
		return number;
	}
	if (vain.condition != condition || begin - vain.until > AT_ONCE_S)
		vain.since = begin;
	vain.condition = condition;
	vain.until = clock_s();
	return number;
}

/* In place of slurm_send_recv_controller_msg in slurmd, which registers the node by it. When it waited in vain it says that the
 * prolog failed, and slurmctld drains the node; it has not looked at the job's credential yet, nor at whose job it is. */
static int tell_controller(void *request, void *answer, void *cluster)
{
	if (!vain.condition || vain.until - vain.since < IN_VAIN_S || clock_s() - vain.until > AT_ONCE_S)
		return send_to_controller(request, answer, cluster);
	vain.condition = NULL;
	errno = ECANCELED;
	return -1;
}

/* In place of mpi_conf_send_stepd in slurmd. A launch names a plugin by a number, of which there may be none: then slurmd sends
 * nothing more and waits for slurmstepd, which waits for the rest. */
static int tell_mpi(int stepd, void *plugin)
{
	int result = send_mpi(stepd, plugin);
	scoped_fd null = result ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;

	if (null >= 0)
		(void)dup3(null, stepd, O_CLOEXEC);
	return result;
}

int jail_launches_guard(struct jail_error *err)
{
	const struct link_map *slurmd = jail_imports_program();
	int missing = slurmd ? jail_imports_wrap(slurmd, "slurm_send_recv_controller_msg", (void *)tell_controller, &send_to_controller, err) : 1;

	if (!missing)
		missing = jail_imports_wrap(slurmd, "pthread_cond_timedwait", (void *)wait_for, NULL, err);
	if (!missing)
		missing = jail_imports_wrap(slurmd, "mpi_conf_send_stepd", (void *)tell_mpi, &send_mpi, err);
	/* A launch says which nodes it is for, and slurmd looks for its own name there before it looks at the credential. */
	if (!missing)
		missing = jail_node_names_guard_library(err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this slurmd launches steps in an unknown way: users can have it drain the "
						  "node, by a message for a job that does not exist");
}
