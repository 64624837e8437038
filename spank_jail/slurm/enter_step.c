/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a step of a job into the jail, in stages: Slurm calls the plugin at several points of a step's start. plugin.c
 * calls it. */
#define _GNU_SOURCE
#include "enter_step.h"

#include <fcntl.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <stdio.h>

#include "native/jail/confine.h"
#include "native/mount/namespace.h"
#include "native/jail/pid_namespace.h"
#include "native/base/scoped.h"
#include "native/seccomp/seccomp.h"
#include "native/base/sys.h"
#include "spank_jail/job/job_directory.h"
#include "spank_jail/job/job_mounts.h"
#include "spank_jail/job/job_namespaces.h"
#include "spank_jail/job/step_inits.h"
#include "spank_jail/job/user_steps.h"
#include "open_step.h"
#include "task_descriptors.h"

/* In the mount namespaces of the job: opens the window's root and takes the tasks' namespace. Returns 0, -1, or 1 when the tasks'
 * namespace has lost mounts: somebody removed, elsewhere, a directory that one was on. */
static int visit(struct jail_opening *opening, int *inside, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	struct jail_namespaces *namespaces = &opening->namespaces;

	if (jail_namespace_enter(namespaces->window, err))
		return -1;
	*inside = sys_open("/", O_PATH | O_DIRECTORY);
	if (*inside < 0)
		return jail_fail(err, "open", errno, "cannot open the window's root");
	if (jail_namespace_enter(namespaces->tasks, err))
		return -1;
	if (step->found && jail_namespace_count(namespaces->tasks) != namespaces->mounts)
		return 1;
	/* A copy costs 50 us. A step that mounts nothing does without: neither can its tasks mount anything there, who have
	 * lost CAP_SYS_ADMIN. */
	step->shared = opening->keep && opening->script < 0 && step->arguments.level == JAIL_LEVEL_CAPABILITIES;
	if (!opening->keep || step->shared)
		step->namespace = jail_keep(&namespaces->tasks);
	else if (jail_namespace_branch(&step->namespace, err))
		return -1;
	return opening->script < 0 ? 0 : jail_spool_show_script(&step->spool, opening->script, err);
}

/* Where slurmstepd sees the node's /proc. */
static int start_pids(struct jail_opening *opening, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	const struct jail_pid_request request = {
		.program = opening->init, .namespace = step->namespace, .root = -1, .view = &opening->processes,
		.level = step->arguments.level,
	};
	pid_t init = 0;

	step->own_pids = jail_pid_own(err);
	step->pids = step->own_pids < 0 ? -1 : jail_pid_start(&request, &init, err);
	return step->pids < 0 ? -1 : jail_step_init_note(opening->directory, init, err);
}

/* Not part of the record: what is taken here is the step's own. */
static int take_processes(struct jail_opening *opening, struct jail_error *err)
{
	const struct jail_arguments *arguments = &opening->step->arguments;

	if (arguments->level < JAIL_LEVEL_PID)
		return 0;
	opening->init = jail_pid_program(arguments->init, err);
	if (opening->init < 0 || jail_plan_read_fd(opening->plan, arguments->plan, &opening->lines, err))
		return -1;
	return jail_pid_view_take(&opening->lines, &opening->processes, err);
}

/* From slurmd's namespace into the window. Returns as visit, with the thread where it was unless 0. */
static int go_in(struct jail_opening *opening, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	struct jail_home home = JAIL_HOME_NONE;
	struct jail_error back;
	scoped_fd inside = -1;

	if (jail_namespace_leave(&home, err))
		return -1;
	int result = visit(opening, &inside, err);
	if (!result)
		result = jail_namespace_enter(opening->namespaces.home, err);
	if (!result && step->arguments.level >= JAIL_LEVEL_PID)
		result = start_pids(opening, err);
	if (!result) {
		step->window.tree = jail_keep(&opening->namespaces.window);
		result = jail_window_enter(&step->window, &opening->namespaces.home, inside, step->user == 0, err);
	}
	if (!result) {
		jail_home_close(&home);
		return 0;
	}
	jail_close(&step->namespace);
	jail_close(&step->window.tree);
	if (jail_namespace_return(&home, &back)) {
		*err = back;
		return -1;
	}
	return result;
}

static int open_step(struct jail_opening *opening, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	scoped_fd script = step->step == SLURM_BATCH_SCRIPT ? jail_spool_take_script(&step->spool, err) : -1;

	if (script < 0 && step->step == SLURM_BATCH_SCRIPT && err->number != ENOENT)
		return -1;
	opening->script = script;
	if (jail_opening_get_namespaces(opening, err) || take_processes(opening, err))
		return -1;
	int result = go_in(opening, err);
	if (result <= 0)
		return result;
	jail_namespaces_close(&opening->namespaces);
	jail_namespaces_drop(opening->directory);
	step->found = false;
	return jail_opening_make_namespaces(opening, err) || go_in(opening, err) ? -1 : 0;
}

/* Opens what the step rests on, and lets `work` go on with the job's directory locked. */
static int with_job(struct jail_step *step, int (*work)(struct jail_opening *, struct jail_error *), struct jail_error *err)
{
	const struct jail_arguments *arguments = &step->arguments;
	struct jail_opening opening = {
		.step = step, .plan = -1, .root = -1, .namespaces = JAIL_NAMESPACES_NONE, .init = -1, .script = -1,
	};

	if (jail_spool_path(arguments->spool, step->node, step->spool.path, err))
		return -1;
	if (snprintf(opening.sealed, sizeof(opening.sealed), "%s/conf-cache", step->spool.path) >= (int)sizeof(opening.sealed))
		return jail_fail(err, NULL, 0, "SlurmdSpoolDir is too long");
	opening.parts = (struct jail_window_parts){
		arguments->window, jail_node_files, step->spool.path, opening.sealed,
		/* Root could name any file of the spool as its output: slurmd believes what is in there. */
		.empty = step->user == 0,
	};
	scoped_fd directory = jail_job_open(step->job, err);
	if (directory < 0)
		return -1;
	/* The extern step is the first of a job on a node: what is there is of an earlier run of the job, one
	 * that was requeued and had no epilog here. */
	if (step->step == SLURM_EXTERN_CONT && jail_job_is_deserted(directory) && jail_job_mounts_clear(directory, err))
		return -1;
	step->presence = jail_job_note_user(directory, step->user, err) ? -1 : jail_job_stay(directory, err);
	if (step->presence >= 0 && step->step != SLURM_EXTERN_CONT && (step->place = jail_user_take_step(step->user, err)) < 0)
		return -1;
	step->ipc = step->presence < 0 ? -1 : jail_job_ipc(directory, err);
	if (step->ipc < 0)
		return -1;
	/* At level pid each step makes its own. */
	if (arguments->level == JAIL_LEVEL_CAPABILITIES) {
		step->pids = jail_user_pids(step->user, arguments->init, err);
		step->own_pids = step->pids < 0 ? -1 : jail_pid_own(err);
		if (step->own_pids < 0)
			return -1;
	}
	opening.directory = directory;
	int result = jail_spool_prepare(&step->spool, directory, step->job, step->step, err) ? -1 : work(&opening, err);
	const char *value = NULL;
	while (!result && step->variable && (value = jail_record_value(&opening.record, value)))
		step->variable(step->context, value);
	jail_opening_close(&opening);
	return result;
}

int jail_step_open(struct jail_step *step, struct jail_error *err)
{
	/* Each task attaches it. */
	if (step->arguments.level >= JAIL_LEVEL_CAPABILITIES && jail_seccomp_prepare(step->arguments.allow, err))
		return -1;
	return with_job(step, open_step, err);
}

int jail_step_prepare(struct jail_step *step, struct jail_error *err)
{
	return with_job(step, jail_opening_get_namespaces, err);
}

static int show_pmix(void *context, struct jail_error *err)
{
	struct jail_step *step = context;

	if (step->namespace < 0)
		return 0;
	return jail_spool_show_pmix(&step->spool, step->window.tree, &step->namespace, step->shared, err);
}

int jail_step_return(struct jail_step *step, struct jail_error *err)
{
	/* Asked here, where it costs a call: not many steps have one. */
	bool shown = step->window.home >= 0 && jail_spool_has_pmix(&step->spool);

	return jail_window_close(&step->window, shown ? show_pmix : NULL, step, err);
}

int jail_step_enter(struct jail_step *step, struct jail_error *err)
{
	if (step->namespace < 0)
		return jail_fail(err, NULL, 0, "the step's jail was not built; see the error before this one");
	if (step->pids >= 0 && !jail_pid_entered())
		return jail_fail(err, NULL, 0, "the PID namespace of the step has ended, or cannot be entered");
	if (jail_task_descriptors_seal(err) || jail_namespace_enter_ipc(step->ipc, err) ||
	    jail_namespace_join(step->namespace, err))
		return -1;
	jail_close(&step->namespace);
	jail_close(&step->window.tree);
	jail_close(&step->window.home);
	jail_close(&step->ipc);
	jail_close(&step->presence);
	jail_close(&step->place);
	jail_close(&step->pids);
	jail_close(&step->own_pids);
	return jail_confine(step->arguments.level, err);
}

int jail_step_confine(struct jail_step *step, struct jail_error *err)
{
	return jail_task_descriptors_check(err) || jail_confine_final(step->arguments.level, err) ? -1 : 0;
}
