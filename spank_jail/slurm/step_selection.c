/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a step gets the jail, where the administrator selects some jobs: by user, group, partition or
 * --jail. options/selection.c parses these settings. plugin.c calls it. */
#define _GNU_SOURCE
#include "step_selection.h"

#include <slurm/slurm.h>

#include "failure.h"
#include "native/base/scoped.h"
#include "native/slurm/controller.h"
#include "spank_jail/job/job_directory.h"
#include "spank_jail/job/outside_marks.h"
#include "spank_jail/options/option_input.h"

/* Slurm's longest name of a partition is not bounded; slurm.conf lists them on one line. */
#define MOST_NAMES 4096

/* SLURM_JOB_PARTITION of the job's environment is what its user likes. */
static int is_in_partition(const struct jail_step *step, bool *found, struct jail_error *err)
{
	char names[MOST_NAMES];

	if (jail_controller_job_partition(step->job, names, sizeof(names), err))
		return -1;
	*found = jail_selection_names_partition(&step->arguments.only, names);
	return 0;
}

static int decide(const struct jail_step *step, const struct jail_user *user, bool *inside, struct jail_error *err)
{
	const struct jail_selection *only = &step->arguments.only;

	*inside = (only->by_request && step->options.asked) ||
		  jail_selection_names_user(only, user->uid, user->gid, user->groups, user->n_groups);
	return *inside || !only->partitions ? 0 : is_in_partition(step, inside, err);
}

/* An option that would be forgotten: the user believes that his job cannot write, say. */
static int refuse_options(const struct jail_options *options, struct jail_error *err)
{
	const char *given = options->asked ? "--jail" : options->n_binds ? "--jail-bind" : options->readonly ? "--jail-readonly" : NULL;

	if (!given)
		return 0;
	jail_fail(err, NULL, 0, "this job is not in the jail, which is for some partitions, users or groups only; ask the administrator which, "
		  "or leave the option out");
	return jail_error_at(err, given, 0, NULL);
}

int jail_step_selection_make(spank_t spank, struct jail_step *step, bool *outside, struct jail_error *err)
{
	struct jail_error unmarked;
	struct jail_user user;
	bool inside = true;

	if (!jail_selection_is_given(&step->arguments.only))
		return 0;
	/* Who becomes root inside becomes a user who is not in the jail, and submits a job as him. */
	step->options.nosuid = true;
	if (jail_input_user(spank, &user, err) || jail_input_options(&step->options, err) || decide(step, &user, &inside, err) ||
	    (!inside && refuse_options(&step->options, err)))
		return -1;
	*outside = !inside;
	/* Held until this process ends. */
	if (!inside && jail_outside_note(step->job, step->user, &unmarked) < 0)
		jail_failure_report(&unmarked);
	return 0;
}

bool jail_step_selection_was_outside(const struct jail_arguments *arguments, uint32_t job, uid_t user)
{
	if (!jail_selection_is_given(&arguments->only))
		return false;
	jail_outside_forget(job, user);
	scoped_fd directory = jail_job_find(job);
	return directory < 0;
}
