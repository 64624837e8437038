/* SPDX-License-Identifier: Apache-2.0 */
/* The SPANK plugin of the jail: srun, sbatch, salloc, slurmd and slurmstepd load it, and its hooks open and enter the jail
 * of a step (enter_step.h).
 *
 * slurmstepd only visits the jail, from init_post_opt to user_init, to open the job's files; tasks enter
 * it for good in task_init_privileged. docs/decisions/jail-entering.md says why.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "native/base/error.h"
#include "native/jail/pid_namespace.h"
#include "native/base/sys.h"
#include "native/slurm/controller.h"
#include "spank_jail/job/bcast_cleanup.h"
#include "spank_jail/job/job_directory.h"
#include "spank_jail/job/job_mounts.h"
#include "spank_jail/guards/step/mpi_peers.h"
#include "spank_jail/options/option_input.h"
#include "spank_jail/guards/step/pmix.h"
#include "spank_jail/guards/step/stuck_processes.h"
#include "spank_jail/job/sessions.h"
#include "allocation_end.h"
#include "step_selection.h"
#include "configuration.h"
#include "failure.h"
#include "guards.h"
#include "mpi_files.h"
#include "new_accounts.h"
#include "new_association.h"
#include "enter_step.h"
#include "step_notices.h"
#include "task_descriptors.h"
#include "fifo_watch.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[], plugin_type[];
EXPORT extern const unsigned int plugin_version, spank_plugin_version;
SPANK_PLUGIN(jail, 1);

/* srun.c has one more. */
EXPORT spank_f slurm_spank_init, slurm_spank_init_post_opt, slurm_spank_user_init,
	slurm_spank_task_init_privileged, slurm_spank_task_init, slurm_spank_task_post_fork,
	slurm_spank_job_epilog, slurm_spank_exit;

#define NAME JAIL_LOG_NAME

/* One step a process: slurmstepd runs nothing else. What it holds open goes with the process: taking
 * namespaces and trees apart waits for RCU grace periods. */
static struct jail_step this_step = {
	.window = JAIL_WINDOW_CLOSED,
	.namespace = -1,
	.pids = -1,
	.own_pids = -1,
	.ipc = -1,
	.presence = -1,
	.place = -1,
};
static struct jail_failure step_failure;
/* What this thread forks once the tasks are there runs for the user; what others do, for Slurm. */
static pthread_t manager;
static bool tasks_forked;
static bool left_alone = true; /* until init_post_opt finds a step that is to be jailed */

/* Where MPI plugins make directories, in the window that is open by now. Root's jobs have no way there. */
static void name_spool(void)
{
	if (this_step.user && this_step.spool.path[0])
		jail_mpi_spool(this_step.spool.path);
}

/* A failure now would reach the log alone (Slurm has not connected the job's streams yet), and drain the
 * node under a batch job. So the step goes on in a window that has nothing in it, up to the point where
 * the reason can be told; no task is started. */
static int open_fallback(void)
{
	struct jail_error err;
	int opened = jail_step_open_fallback(&this_step, jail_failure_needs_volume(&step_failure, &this_step), &err);

	if (opened < 0)
		jail_failure_report(&err);
	name_spool();
	return opened > 0 ? ESPANK_SUCCESS : jail_failure_result(&step_failure);
}

/* Ends a task that must not run: whatever Slurm makes of a hook's result, and even if the plugin is
 * "optional" in plugstack.conf, this process will not execute the user's program outside the jail. */
static _Noreturn void end_task(const struct jail_error *err)
{
	if (err)
		jail_failure_report(err);
	_exit(1);
}

static long microseconds_since(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - start->tv_sec) * 1000000L + (now.tv_nsec - start->tv_nsec) / 1000;
}

/* srun, sbatch and salloc read the same plugstack.conf, perhaps inside the jail: the options concern them,
 * and a wrong argument is the nodes' to report. */
static int init_client(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	bool wrong = jail_arguments_parse(ac, (const char *const *)av, &this_step.arguments, &err);

	return jail_input_register(spank, wrong ? NULL : &this_step.arguments, &err) ? jail_failure_report(&err)
										: ESPANK_SUCCESS;
}

static bool is_client(void)
{
	return spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
}

/* Where the jail is for some, slurmd does for the others what it did before: sbcast writes where it did. */
static void guard_slurmd(bool read)
{
	if (!read || !jail_selection_is_given(&this_step.arguments.only))
		jail_guard_slurmd(read ? this_step.arguments.bcast : JAIL_BCAST);
	if (jail_configuration_su_is_outside())
		slurm_error(NAME "`sbatch --get-user-env` and `--export=NONE` run a user's profile outside the jail: add the line "
			    "\"session required pam_jail.so\" to /etc/pam.d/su-l, with the arguments of /etc/pam.d/sshd's");
}

int slurm_spank_init(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	spank_context_t context = spank_context();

	if (is_client())
		return init_client(spank, ac, av);
	if (context != S_CTX_REMOTE && context != S_CTX_SLURMD && context != S_CTX_JOB_SCRIPT)
		return ESPANK_SUCCESS;
	bool read = !jail_arguments_parse(ac, (const char *const *)av, &this_step.arguments, &err);
	if (context == S_CTX_SLURMD)
		guard_slurmd(read);
	if (read && !jail_configuration_check(&err) &&
	    (context != S_CTX_REMOTE || !jail_input_register(spank, &this_step.arguments, &err)))
		return ESPANK_SUCCESS;
	if (context != S_CTX_REMOTE)
		return jail_failure_report(&err);
	/* Slurm may shrug at a plugin that fails to initialize, by version and by plugstack.conf, and run the
	 * step without its hooks: outside. */
	jail_failure_remember(&step_failure, &err);
	return ESPANK_SUCCESS;
}

/* Reads the job's options. `outside` becomes true for a step that has a right to --no-jail; -1: they are wrong,
 * or it has none, and the step must not run. */
static int read_options(spank_t spank, bool *outside, struct jail_error *err)
{
	if (jail_input_read(spank, &this_step.options, err))
		return -1;
	if (!this_step.options.no_jail)
		return 0;
	if (jail_input_outside(spank, this_step.job, this_step.step, &this_step.options, &this_step.arguments, err))
		return -1;
	slurm_info(NAME "--no-jail: uid %u runs outside the jail", (unsigned)this_step.options.user.uid);
	*outside = true;
	return 0;
}

/* For the steps to come. What is wrong, they will find and tell. And what there is of jobs that had no
 * epilog here is taken away: slurmd was killed, or the node given up, before their end. Not in the epilog:
 * there Slurm's library cannot ask slurmctld anything, and ends the process. */
static int prepare_job(spank_t spank)
{
	struct jail_error err;

	if (!step_failure.line[0] && !jail_input_read(spank, &this_step.options, &err) && !this_step.options.no_jail &&
	    jail_step_prepare(&this_step, &err))
		jail_failure_remember(&step_failure, &err);
	jail_failure_drain(&step_failure, this_step.node);
	if (jail_job_mounts_sweep(jail_controller_job_is_over, jail_stuck_leave, &err))
		jail_failure_report(&err);
	return ESPANK_SUCCESS;
}

static bool is_manager(void)
{
	return pthread_equal(pthread_self(), manager);
}

/* At level pid. Slurm's own fork makes each task then, and so is its parent: it waits for it, signals it
 * and counts what it uses as ever. */
static void fork_begins(void)
{
	if (!left_alone && is_manager() && this_step.window.home < 0)
		jail_step_fork_begin(&this_step);
}

static void fork_ended(void)
{
	if (!left_alone && is_manager() && this_step.window.home < 0)
		jail_step_fork_end(&this_step);
}

/* What the manager forks after the tasks runs for the user: `srun --task-epilog` and TaskEpilog are executed without a
 * SPANK hook. They enter the jail here, or end. No message: after a fork among threads, the log's locks may be
 * held by nobody. */
static void child_begins(void)
{
	struct jail_error err;
	uid_t user = geteuid();

	if (left_alone)
		return;
	if (!is_manager()) {
		jail_step_fork_outside(&this_step);
		return;
	}
	if (!tasks_forked)
		return;
	if (this_step.pids >= 0 && !jail_pid_entered())
		_exit(1);
	if ((user && sys_thread_seteuid(0)) || jail_step_enter(&this_step, &err) || (user && sys_thread_seteuid(user)))
		_exit(1);
}

static int follow_forks(void)
{
	int number;

	manager = pthread_self();
	number = pthread_atfork(fork_begins, fork_ended, child_begins);
	if (!number)
		return ESPANK_SUCCESS;
	slurm_error(NAME "pthread_atfork: %s: the step's processes could not be kept in the jail", strerror(number));
	return JAIL_FAILED;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char *av[])
{
	bool outside = false;
	struct jail_error err;
	struct timespec start;

	(void)ac;
	(void)av;
	if (is_client()) {
		jail_allocation_end_tell();
		if (jail_new_accounts_wait())
			jail_new_association_wait();
		return jail_input_submit(&err) ? jail_failure_report(&err) : ESPANK_SUCCESS;
	}
	if (!spank_remote(spank))
		return ESPANK_SUCCESS;
	if (spank_get_item(spank, S_JOB_ID, &this_step.job) || spank_get_item(spank, S_JOB_STEPID, &this_step.step) ||
	    spank_get_item(spank, S_JOB_UID, &this_step.user)) {
		left_alone = false;
		jail_fail(&err, NULL, 0, "Slurm does not say which job and step this is, and whose");
		return jail_failure_report(&err);
	}
	jail_step_hear(&this_step, spank);
	if (!step_failure.line[0] && jail_step_selection_make(spank, &this_step, &outside, &err))
		jail_failure_remember(&step_failure, &err);
	if (outside)
		return ESPANK_SUCCESS;
	jail_guard_ending(this_step.user);
	jail_node_counters_open(JAIL_NODE_COUNTERS);
	/* It runs nothing of the user's, and has neither user_init nor a task hook to come back by. */
	if (this_step.step == SLURM_EXTERN_CONT)
		return prepare_job(spank);
	if (!step_failure.line[0] && (jail_mpi_guard(this_step.user, &err) || jail_mpi_guard_peers(this_step.user, &err) ||
				      jail_pmix_guard(this_step.user, &err) || read_options(spank, &outside, &err)))
		jail_failure_remember(&step_failure, &err);
	left_alone = outside;
	if (left_alone)
		return jail_mpi_outside(&this_step, &err) ? jail_failure_report(&err) : ESPANK_SUCCESS;
	if (follow_forks())
		return JAIL_FAILED;
	clock_gettime(CLOCK_MONOTONIC, &start);
	if (!step_failure.line[0] && jail_step_open(&this_step, &err))
		jail_failure_remember(&step_failure, &err);
	jail_failure_drain(&step_failure, this_step.node);
	if (step_failure.line[0]) {
		jail_failure_count(&step_failure);
		return open_fallback();
	}
	name_spool();
	/* Without it a wait for a user's FIFO lasts until somebody opens its other end: no reason to fail the step. */
	if (jail_watch_start(this_step.job, this_step.window.home, &err))
		jail_failure_report(&err);
	slurm_debug(NAME "%s in %ld us", this_step.found ? "opened" : "built", microseconds_since(&start));
	return ESPANK_SUCCESS;
}

int slurm_spank_user_init(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	struct timespec start;

	(void)spank;
	(void)ac;
	(void)av;
	if (left_alone)
		return ESPANK_SUCCESS;
	clock_gettime(CLOCK_MONOTONIC, &start);
	jail_watch_stop();
	if (!step_failure.line[0] && this_step.user && jail_task_descriptors_avoid(this_step.spool.path, &err))
		jail_failure_remember(&step_failure, &err);
	if (jail_step_return(&this_step, &err))
		return jail_failure_report(&err);
	jail_failure_count(&step_failure);
	if (step_failure.line[0])
		return jail_failure_tell(&step_failure, &this_step);
	slurm_debug(NAME "slurmstepd back outside in %ld us", microseconds_since(&start));
	return ESPANK_SUCCESS;
}

int slurm_spank_task_init_privileged(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	struct timespec start;

	(void)spank;
	(void)ac;
	(void)av;
	if (left_alone)
		return ESPANK_SUCCESS;
	if (step_failure.line[0])
		end_task(NULL);
	clock_gettime(CLOCK_MONOTONIC, &start);
	if (jail_step_enter(&this_step, &err))
		end_task(&err);
	slurm_debug(NAME "task entered in %ld us", microseconds_since(&start));
	return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int ac, char *av[])
{
	struct jail_error err;

	(void)spank;
	(void)ac;
	(void)av;
	if (!left_alone && jail_step_confine(&this_step, &err))
		end_task(&err);
	return ESPANK_SUCCESS;
}

/* In slurmstepd, once all tasks of the step are forked; they have entered, or will, by their own hook. */
int slurm_spank_task_post_fork(spank_t spank, int ac, char *av[])
{
	(void)spank;
	(void)ac;
	(void)av;
	tasks_forked = true;
	return ESPANK_SUCCESS;
}

int slurm_spank_job_epilog(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	uint32_t job;
	uid_t user;

	if (spank_get_item(spank, S_JOB_ID, &job))
		return ESPANK_SUCCESS;
	/* Here slurm_spank_init is not called. */
	bool read = !jail_arguments_parse(ac, (const char *const *)av, &this_step.arguments, &err);
	bool known = !spank_get_item(spank, S_JOB_UID, &user);
	if (!read)
		jail_failure_report(&err);
	if (read && known && jail_step_selection_was_outside(&this_step.arguments, job, user))
		return ESPANK_SUCCESS;
	/* The job is over: a mount that is left is the node's trouble, not a reason to fail it. */
	if (jail_job_mounts_release(job, jail_stuck_leave, &err))
		jail_failure_report(&err);
	if (!known || !user || jail_job_user_has_another(job, user))
		return ESPANK_SUCCESS;
	if (read && jail_bcast_sweep(this_step.arguments.bcast, user, &err))
		jail_failure_report(&err);
	jail_sessions_end(user);
	return ESPANK_SUCCESS;
}

int slurm_spank_exit(spank_t spank, int ac, char *av[])
{
	(void)spank;
	(void)ac;
	(void)av;
	if (is_client())
		jail_input_submitted();
	return ESPANK_SUCCESS;
}
