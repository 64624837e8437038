/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests to slurmctld: whether a job is over, which partition it is in, and to drain a node. pyxis/slurm and
 * spank_jail/slurm call it. */
#define _GNU_SOURCE
#include "controller.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>

static int load_job(uint32_t job, job_info_msg_t **jobs)
{
#ifdef slurm_load_job_sluid /* since then a job is asked for by a structure */
	slurm_step_id_t id = SLURM_STEP_ID_INITIALIZER;

	id.job_id = job;
	return slurm_load_job(jobs, id, SHOW_ALL);
#else
	return slurm_load_job(jobs, job, SHOW_ALL);
#endif
}

/* While it completes, its epilog on this node is still to come. */
static bool has_ended(const job_info_t *job)
{
	return (job->job_state & JOB_STATE_BASE) > JOB_SUSPENDED && !(job->job_state & JOB_COMPLETING);
}

bool jail_controller_job_is_over(uint32_t job)
{
	job_info_msg_t *jobs = NULL;
	bool over = true;

	if (load_job(job, &jobs))
		return errno == ESLURM_INVALID_JOB_ID;
	for (uint32_t i = 0; i < jobs->record_count; i++)
		if (jobs->job_array[i].job_id == job && !has_ended(&jobs->job_array[i]))
			over = false;
	slurm_free_job_info_msg(jobs);
	return over;
}

/* Its user may move a job that was requeued to another partition, while steps of its former run still begin. */
static bool is_running(const job_info_t *job)
{
	uint32_t state = job->job_state & JOB_STATE_BASE;

	return (state == JOB_RUNNING || state == JOB_SUSPENDED) && !(job->job_state & JOB_COMPLETING);
}

int jail_controller_job_partition(uint32_t job, char *names, size_t size, struct jail_error *err)
{
	job_info_msg_t *jobs = NULL;
	bool over = false;
	int length = -1;

	/* EAGAIN: no fault of the node's, which would be drained for it. */
	if (load_job(job, &jobs))
		return jail_fail(err, NULL, EAGAIN, "slurmctld does not say which partition job %u is in: %s; submit it again when "
				 "`scontrol ping` says that slurmctld is up", job, slurm_strerror(errno));
	for (uint32_t i = 0; i < jobs->record_count; i++)
		if (jobs->job_array[i].job_id == job && jobs->job_array[i].partition) {
			over |= !is_running(&jobs->job_array[i]);
			length = snprintf(names, size, "%s", jobs->job_array[i].partition);
		}
	slurm_free_job_info_msg(jobs);
	if (over)
		return jail_fail(err, NULL, EAGAIN, "job %u was ended or requeued before this step began; `scontrol show job %u` shows it",
				 job, job);
	if (length > 0 && (size_t)length < size)
		return 0;
	return jail_fail(err, NULL, EAGAIN, "slurmctld names no partition for job %u, or too many; `scontrol show job %u` shows what it "
			 "knows", job, job);
}

static bool is_drained(char *node)
{
	node_info_msg_t *nodes = NULL;

	if (slurm_load_node_single(&nodes, node, SHOW_ALL))
		return false;
	bool drained = nodes->record_count == 1 && (nodes->node_array[0].node_state & NODE_STATE_DRAIN);
	slurm_free_node_info_msg(nodes);
	return drained;
}

int jail_controller_drain(const char *node, const char *reason, struct jail_error *err)
{
	update_node_msg_t update;

	if (!node)
		return jail_fail(err, NULL, 0, "the node could not be drained: its name is not known here");
	slurm_init_update_node_msg(&update);
	/* The library only reads them. */
	update.node_names = (char *)(uintptr_t)node;
	update.reason = (char *)(uintptr_t)reason;
	update.node_state = NODE_STATE_DRAIN;
	if (is_drained(update.node_names) || !slurm_update_node(&update))
		return 0;
	return jail_fail(err, NULL, 0, "the node could not be drained: %s", slurm_strerror(errno));
}
