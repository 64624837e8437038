/* SPDX-License-Identifier: Apache-2.0 */
/* The SPANK plugin behind `srun --container-image`: srun, sbatch, salloc, slurmd and slurmstepd load it, and its hooks make
 * and enter the container of a step.
 *
 * All work is done by the tasks, in task_init: as the user, and where spank_jail comes first in plugstack.conf, in
 * the jail. slurmstepd itself only holds pipes. docs/decisions/pyxis-in-the-task.md says why.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "native/base/node_counters.h"
#include "native/base/scoped.h"
#include "native/slurm/controller.h"
#include "pyxis/step/container.h"
#include "pyxis/step/container_run.h"
#include "pyxis/step/image.h"
#include "pyxis/step/step_cleanup.h"
#include "pyxis/step/implicit_mounts.h"
#include "pyxis/step/pmix.h"
#include "pyxis/step/program_fault.h"
#include "pyxis/step/shared_memory.h"
#include "pyxis/step/task.h"
#include "epilog.h"
#include "input.h"
#include "log.h"

/* Of an image: 2^44, 16 TiB. */
#define MOST_BYTES ((uint64_t)1 << 44)

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[], plugin_type[];
EXPORT extern const unsigned int plugin_version, spank_plugin_version;
SPANK_PLUGIN(pyxis, 1);

EXPORT spank_f slurm_spank_init, slurm_spank_init_post_opt, slurm_spank_user_init, slurm_spank_task_init,
	slurm_spank_task_exit, slurm_spank_job_epilog, slurm_spank_exit;

/* One step a process: slurmstepd runs nothing else. */
static struct pyxis_arguments plugin_arguments;
static struct pyxis_request step_request;
static struct pyxis_owner step_owner;
static struct jail_error wrong;  /* of the options, to be told by the tasks */
static bool is_wrong, is_active; /* is_active: there is a container for this step */
static struct pyxis_shared *shared;
static struct pyxis_step_cleanup cleanup = PYXIS_STEP_CLEANUP_NONE;
static uint32_t tasks, exited, node, nodes;
static int note = -1; /* open as long as slurmstepd lives */

static bool is_client(void)
{
	return spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR;
}

int slurm_spank_init(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	spank_context_t context = spank_context();

	/* slurmd, too: a wrong argument shows when it starts. */
	if (pyxis_arguments_parse(ac, (const char *const *)av, &plugin_arguments, &err))
		return pyxis_log_error(&err);
	if (context != S_CTX_LOCAL && context != S_CTX_REMOTE && (context != S_CTX_ALLOCATOR || !plugin_arguments.sbatch_support))
		return ESPANK_SUCCESS;
	/* Here, for the next hook finds slurmstepd in the jail's window already. 10 us. */
	if (context == S_CTX_REMOTE)
		jail_node_counters_open(JAIL_NODE_COUNTERS);
	return pyxis_input_register(spank, &err) ? pyxis_log_error(&err) : ESPANK_SUCCESS;
}

/* srun, sbatch, salloc: what can be known to be wrong is told before there is a job. */
static int check_client(void)
{
	struct jail_error err;
	char line[200];

	if (spank_context() == S_CTX_ALLOCATOR && !plugin_arguments.sbatch_support)
		return ESPANK_SUCCESS;
	if (pyxis_input_read(environ, &step_request, &err))
		return pyxis_log_error(&err);
	for (int option = 0; !step_request.image && !step_request.name && option < PYXIS_N_OPTIONS; option++) {
		if (!pyxis_request_gives(&step_request, (enum pyxis_option)option))
			continue;
		snprintf(line, sizeof(line), "ignoring --%s because neither --container-image nor --container-name is set",
			 pyxis_option_names[option]);
		pyxis_log_say(line);
	}
	return ESPANK_SUCCESS;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char *av[])
{
	char **environment = NULL;

	(void)ac;
	(void)av;
	if (is_client())
		return check_client();
	if (!spank_remote(spank))
		return ESPANK_SUCCESS;
	if (spank_get_item(spank, S_JOB_ID, &step_owner.job) || spank_get_item(spank, S_JOB_STEPID, &step_owner.step) ||
	    spank_get_item(spank, S_JOB_UID, &step_owner.uid) || spank_get_item(spank, S_JOB_GID, &step_owner.gid)) {
		jail_fail(&wrong, NULL, 0, "Slurm does not say which job and step this is, and whose");
		is_wrong = is_active = true;
		return ESPANK_SUCCESS;
	}
	if (step_owner.step == SLURM_EXTERN_CONT) {
		/* A job begins here. Not in an epilog: there Slurm's library cannot ask slurmctld anything. */
		pyxis_epilog_sweep(&plugin_arguments, step_owner.job, jail_controller_job_is_over);
		return ESPANK_SUCCESS;
	}
	if (step_owner.step == SLURM_BATCH_SCRIPT && !plugin_arguments.sbatch_support)
		return ESPANK_SUCCESS;
	(void)spank_get_item(spank, S_JOB_ENV, &environment);
	is_wrong = pyxis_input_read(environment, &step_request, &wrong);
	is_active = is_wrong || step_request.image || step_request.name;
	return ESPANK_SUCCESS;
}

/* slurmstepd, before it forks the tasks. */
int slurm_spank_user_init(spank_t spank, int ac, char *av[])
{
	(void)ac;
	(void)av;
	if (!is_active || is_wrong)
		return ESPANK_SUCCESS;
	if (spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) || spank_get_item(spank, S_JOB_NODEID, &node) ||
	    spank_get_item(spank, S_JOB_NNODES, &nodes)) {
		is_wrong = jail_fail(&wrong, NULL, 0, "Slurm does not say how many tasks this step has here");
		return ESPANK_SUCCESS;
	}
	/* All that can be left when a step is killed: what is mounted goes by itself. */
	if (step_request.save || pyxis_image_is_unpacked(&plugin_arguments) ||
	    (step_request.name && plugin_arguments.job_scope) ||
	    (step_request.image && !pyxis_image_is_path(step_request.image)))
		note = pyxis_epilog_note(&plugin_arguments, &step_owner);
	shared = pyxis_shared_make(&wrong);
	is_wrong = !shared || pyxis_step_cleanup_prepare(&cleanup, &wrong);
	return ESPANK_SUCCESS;
}

/* The batch script lies in the spool, which no container shows. */
static void show_script(spank_t spank, struct text_list *places)
{
	char **words = NULL;
	int n = 0;

	if (step_owner.step == SLURM_BATCH_SCRIPT && !spank_get_item(spank, S_JOB_ARGV, &n, &words) && n > 0 &&
	    words[0][0] == '/')
		pyxis_implicit_mounts_add(words[0], ":ro", places);
}

static int keep(struct pyxis_container *container, struct jail_error *err)
{
	return pyxis_step_cleanup_start(&cleanup, container, err);
}

/* The first task of the step on this node. */
static int open_container(spank_t spank, char *const *environment, struct jail_error *err)
{
	struct pyxis_container container = {
		.request = &step_request, .arguments = &plugin_arguments, .owner = step_owner, .node = node, .nodes = nodes,
		.life = cleanup.life[0], .say = pyxis_log_say, .keep = keep, .begun = &shared->begun,
		.imported = &shared->imported,
		.log = -1,
	};

	show_script(spank, &container.places);
	if (pyxis_container_open(&container, environment, err)) {
		pyxis_shared_publish(shared, PYXIS_FAILED);
		pyxis_log_error(err);
		pyxis_container_explain(&container);
		if (!container.kept)
			pyxis_container_close(&container, (struct pyxis_outcome){ false, 0 });
		return -1;
	}
	for (unsigned i = 0; i < container.leftovers.n; i++)
		shared->left[i] = container.leftovers.jobs[i];
	if (step_request.entrypoint_log == PYXIS_YES && !container.joined)
		pyxis_container_show_log(&container);
	shared->member = container.member;
	shared->unshare = container.unshare;
	shared->mounts = pyxis_task_mounts(container.member);
	if (pyxis_container_keep(&container, err)) {
		pyxis_shared_publish(shared, PYXIS_FAILED);
		return pyxis_log_error(err);
	}
	pyxis_shared_publish(shared, PYXIS_RUNNING);
	return 0;
}

static int wait_for_first(struct jail_error *err)
{
	if (pyxis_shared_wait(shared) == PYXIS_RUNNING)
		return 0;
	jail_fail(err, NULL, 0, "container was not started successfully by another task");
	return pyxis_log_error(err);
}

static int set_environment(spank_t spank, char *const *environment, const struct variables *container, struct jail_error *err)
{
	scoped_list changes = { 0 };

	pyxis_task_environment(environment, container, &step_request, &changes);
	pyxis_pmix_environment(environment, geteuid() != step_owner.uid, &changes);
	for (size_t i = 0; i < changes.n; i++) {
		char *value = strchr(changes.items[i], '=');
		if (!value) {
			(void)spank_unsetenv(spank, changes.items[i]);
			continue;
		}
		*value = '\0';
		if (spank_setenv(spank, changes.items[i], value + 1, 1))
			return jail_fail(err, NULL, 0, "cannot set the variable %s of the task", changes.items[i]);
	}
	return 0;
}

/* Slurm has its own word for it, and its own status: the one adds to the other. */
static void explain_program(spank_t spank)
{
	char path[4096] = "", **words = NULL, *rest, *line;
	int n = 0;

	if (spank_get_item(spank, S_JOB_ARGV, &n, &words) || n < 1)
		return;
	/* With --multi-prog it is the name of srun's file, and what is in that file. */
	if (n > 1 && strchr(words[1], '\n'))
		return;
	(void)spank_getenv(spank, "PATH", path, sizeof(path));
	scoped_free char *fault = pyxis_program_fault(words[0], path);
	if (!fault || __atomic_exchange_n(&shared->reported, 1, __ATOMIC_ACQ_REL))
		return;
	for (rest = fault; (line = strsep(&rest, "\n"));)
		pyxis_log_say(jail_one_line(line));
}

static int enter(spank_t spank, struct jail_error *err)
{
	scoped_variables container = { 0 };
	char **environment = NULL;

	if (is_wrong)
		return pyxis_log_error(&wrong);
	(void)spank_get_item(spank, S_JOB_ENV, &environment);
	if (pyxis_shared_claim(shared) ? open_container(spank, environment, err) : wait_for_first(err))
		return -1;
	pyxis_step_cleanup_leave(&cleanup);
	if (pyxis_task_join(shared->member, shared->mounts, shared->unshare, &step_request, &container, err) ||
	    set_environment(spank, environment, &container, err))
		return pyxis_log_error(err);
	pyxis_shared_enter(shared);
	explain_program(spank);
	return 0;
}

/* Until it runs the user's program, a task is a copy of slurmstepd, of its name, too: proctrack/linuxproc spares what is
 * called so, even from SIGKILL, and handlers forget what comes. A job that is cancelled while its image is imported would
 * end after the import. Signals that only the user's program can understand are forgotten still. */
static void can_be_cancelled(void)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGQUIT };

	(void)prctl(PR_SET_NAME, "pyxis-task");

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		signal(numbers[i], SIG_DFL);
}

/* In the task, as the user, after spank_jail. A task that cannot enter must not run: whatever Slurm makes of a hook's
 * result, and without its "task_init() failed with rc=-1" behind the reason. */
int slurm_spank_task_init(spank_t spank, int ac, char *av[])
{
	struct jail_error err;

	(void)ac;
	(void)av;
	if (!is_active)
		return ESPANK_SUCCESS;
	can_be_cancelled();
	jail_close(&note);
	if (enter(spank, &err))
		_exit(1);
	return ESPANK_SUCCESS;
}

/* What tasks wrote into shared memory are numbers, and the answer is for the user's own process. */
static unsigned find_over(void)
{
	time_t begun = time(NULL);
	unsigned over = 0;

	/* Who does not answer at once is not asked again: the step waits. */
	for (unsigned i = 0; i < PYXIS_LEFTOVER_JOBS && time(NULL) - begun < 2; i++)
		if (shared->left[i] && jail_controller_job_is_over(shared->left[i]))
			over |= 1u << i;
	return over;
}

/* slurmstepd. After the last task the container ends; what has to be done then is the keeper's. */
int slurm_spank_task_exit(spank_t spank, int ac, char *av[])
{
	(void)spank;
	(void)ac;
	(void)av;
	if (shared && ++exited == tasks)
		pyxis_step_cleanup_finish(&cleanup, (struct pyxis_outcome){
						     __atomic_load_n(&shared->entered, __ATOMIC_ACQUIRE) == tasks, find_over() });
	return ESPANK_SUCCESS;
}

/* Slurm calls no slurm_spank_init before it. */
int slurm_spank_job_epilog(spank_t spank, int ac, char *av[])
{
	struct jail_error err;
	uint32_t job;
	uid_t uid;

	/* The job is over: what cannot be removed is no reason to fail it, or to drain the node. */
	if (!spank_get_item(spank, S_JOB_ID, &job) && !spank_get_item(spank, S_JOB_UID, &uid) &&
	    (pyxis_arguments_parse(ac, (const char *const *)av, &plugin_arguments, &err) ||
	     pyxis_epilog_run(&plugin_arguments, job, uid, &err)))
		pyxis_log_error(&err);
	return ESPANK_SUCCESS;
}

/* What a task wrote into shared memory is as its user has it: one image for a step, and of no more bytes than a disk has. */
static void count_import(void)
{
	static const struct { enum jail_node_counter images, bytes; } counters[] = {
		[PYXIS_IMAGE_FETCHED] = { JAIL_IMAGES_FETCHED, JAIL_IMAGE_BYTES_FETCHED },
		[PYXIS_IMAGE_CACHED] = { JAIL_IMAGES_CACHED, JAIL_IMAGE_BYTES_CACHED },
		[PYXIS_IMAGE_FAILED] = { JAIL_IMAGES_FAILED, JAIL_IMAGE_BYTES_FETCHED },
	};
	const struct pyxis_import import = shared ? shared->imported : (struct pyxis_import){ PYXIS_NO_IMPORT, 0 };

	if (import.result < PYXIS_IMAGE_FETCHED || import.result > PYXIS_IMAGE_FAILED)
		return;
	jail_node_count(counters[import.result].images, 1);
	jail_node_count(counters[import.result].bytes, import.bytes < MOST_BYTES ? import.bytes : 0);
}

int slurm_spank_exit(spank_t spank, int ac, char *av[])
{
	(void)spank;
	(void)ac;
	(void)av;
	count_import();
	pyxis_step_cleanup_leave(&cleanup);
	return ESPANK_SUCCESS;
}
