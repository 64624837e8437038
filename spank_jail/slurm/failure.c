/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the reason why a step has no jail until it can be shown to the user, and drains the node if the node is at
 * fault. plugin.c calls it. */
#define _GNU_SOURCE
#include "failure.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>

#include "native/slurm/controller.h"
#include "spank_jail/options/options.h"

int jail_failure_report(const struct jail_error *err)
{
	char line[1400];

	slurm_error(JAIL_LOG_NAME "%s", jail_error_format(err, line, sizeof(line)));
	return JAIL_FAILED;
}

/* What runs out, users can use up: processes and mounts have common limits. It comes back, too. */
static bool is_shortage(const struct jail_error *err)
{
	static const char *const mounting[] = { "unshare", "open_tree", "move_mount", "fsmount", "mount_setattr" };

	for (size_t i = 0; err->number == ENOSPC && i < sizeof(mounting) / sizeof(mounting[0]); i++)
		if (!strcmp(err->syscall, mounting[i]))
			return true;
	return err->number == ENOMEM || err->number == EAGAIN || err->number == EINTR || err->number == EMFILE ||
	       err->number == ENFILE;
}

void jail_failure_remember(struct jail_failure *failure, const struct jail_error *err)
{
	jail_failure_report(err);
	jail_error_format(err, failure->line, sizeof(failure->line));
	failure->counted_as = jail_options_at_fault(err) ? JAIL_STEPS_WRONG_OPTION
			      : err->inside		 ? JAIL_STEPS_INSIDE
			      : is_shortage(err)	 ? JAIL_STEPS_SHORTAGE
							 : JAIL_STEPS_NODE;
}

/* Whether any other job would fail here, too. */
static bool is_nodes(const struct jail_failure *failure)
{
	return failure->counted_as == JAIL_STEPS_NODE;
}

void jail_failure_drain(const struct jail_failure *failure, const char *node)
{
	struct jail_error err;
	char reason[1500];

	snprintf(reason, sizeof(reason), JAIL_LOG_NAME "%s", failure->line);
	if (!is_nodes(failure))
		return;
	if (jail_controller_drain(node, reason, &err))
		jail_failure_report(&err);
	else
		jail_node_count(JAIL_NODE_DRAINS, 1);
}

void jail_failure_count(const struct jail_failure *failure)
{
	static bool counted;

	if (!counted)
		jail_node_count(failure->line[0] ? failure->counted_as : JAIL_STEPS_ENTERED, 1);
	counted = true;
}

/* In 22.05 and before, Slurm calls it success when slurmstepd gives up: srun ends with status 0 and a batch job is
 * COMPLETED; whoever waits for it believes that it ran. */
static const bool giving_up_is_success = SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(23, 2, 0);

bool jail_failure_needs_volume(const struct jail_failure *failure, const struct jail_step *step)
{
	return is_nodes(failure) && step->step == SLURM_BATCH_SCRIPT && !giving_up_is_success;
}

/* From 25.05 on Slurm asks whose fault it is, here and in slurm_spank_init and nowhere else. Tried on 26.05.5: a
 * batch job is requeued for a node's fault, and FAILED without draining for its own. */
int jail_failure_result(const struct jail_failure *failure)
{
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
	return is_nodes(failure) ? ESPANK_NODE_FAILURE : ESPANK_JOB_FAILURE;
#else
	(void)failure;
	return JAIL_FAILED;
#endif
}

int jail_failure_tell(const struct jail_failure *failure, const struct jail_step *step)
{
	slurm_error(JAIL_LOG_NAME "%s", failure->line);
	/* A failure of user_init drains the node under a batch job, and requeues the job: right for the node's faults
	 * alone. Else the tasks are forked, and end in task_init_privileged, as they do for what the user has to
	 * repair. */
	if (failure->counted_as == JAIL_STEPS_WRONG_OPTION || giving_up_is_success ||
	    (step->step == SLURM_BATCH_SCRIPT && !is_nodes(failure)))
		return ESPANK_SUCCESS;
	return JAIL_FAILED;
}
