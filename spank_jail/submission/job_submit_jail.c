/* SPDX-License-Identifier: Apache-2.0 */
/* job_submit/jail: makes of a submission what slurmctld can read again. slurmctld loads it (JobSubmitPlugins, slurm.conf(5)).
 *
 * slurmctld writes a job's switches down as a user sent them, and takes no others than 0 and 1 from its own records when it
 * starts: one job that somebody made up, and it never starts again. job_submit.lua cannot see all of them.
 */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[], plugin_type[];
EXPORT extern const uint32_t plugin_version;
EXPORT int job_submit(job_desc_msg_t *job, uint32_t user, char **message);
EXPORT int job_modify(job_desc_msg_t *change, void *job, uint32_t user, char **message);

const char plugin_name[] = "Job submit plugin of the jail", plugin_type[] = "job_submit/jail";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

static void set_switch(uint16_t *value)
{
	if (*value > 1 && *value != NO_VAL16)
		*value = 1;
}

static int set_switches(job_desc_msg_t *job)
{
	if (job->overcommit > 1 && job->overcommit != NO_VAL8)
		job->overcommit = 1;
	set_switch(&job->contiguous);
	set_switch(&job->kill_on_node_fail);
	set_switch(&job->requeue);
	return SLURM_SUCCESS;
}

int job_submit(job_desc_msg_t *job, uint32_t user, char **message)
{
	(void)user;
	(void)message;
	return set_switches(job);
}

/* Releases differ in whether there is a `message`. */
int job_modify(job_desc_msg_t *change, void *job, uint32_t user, char **message)
{
	(void)job;
	(void)user;
	(void)message;
	return set_switches(change);
}
