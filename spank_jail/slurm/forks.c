/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the processes that slurmstepd forks for a step begin in the step's PID namespace. plugin.c calls it. */
#define _GNU_SOURCE
#include <unistd.h>

#include "native/mount/namespace.h"
#include "native/jail/pid_namespace.h"
#include "native/base/sys.h"
#include "enter_step.h"

/* Slurm forks as the user. */
static void enter_pids(int namespace)
{
	struct jail_error err;
	uid_t user = geteuid();

	if (user && sys_thread_seteuid(0))
		return;
	/* What fails here, the child finds out: jail_step_enter. */
	(void)jail_pid_enter(namespace, &err);
	/* Never go on with more rights than before. */
	if (user && sys_thread_seteuid(user))
		_exit(1);
}

void jail_step_fork_outside(const struct jail_step *step)
{
	struct jail_error err;

	/* Without rights to, it stays in the window, where nothing of the jail can be executed. */
	if (step->window.home >= 0)
		(void)jail_namespace_enter(step->window.home, &err);
}

void jail_step_fork_begin(const struct jail_step *step)
{
	if (step->pids >= 0)
		enter_pids(step->pids);
}

void jail_step_fork_end(const struct jail_step *step)
{
	if (step->pids >= 0)
		enter_pids(step->own_pids);
}
