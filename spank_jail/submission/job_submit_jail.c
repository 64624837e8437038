/* SPDX-License-Identifier: Apache-2.0 */
/* job_submit/jail: a plugin of slurmctld that refuses or corrects submissions that would stop it, and installs its
 * guards. slurmctld loads it (JobSubmitPlugins, slurm.conf(5)).
 *
 * slurmctld saves a job's switches as a user sent them, but at its next start accepts only 0 and 1: one forged job,
 * and it never starts again. job_submit.lua cannot see all of them. It also refuses features, licenses and
 * dependencies that take too long or too much memory, and texts with which a few thousand jobs fill the saved
 * records. The guards are spank_jail/guards/common and spank_jail/guards/controller; each file there says what it
 * guards against.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "spank_jail/guards/controller/bit_ranges.h"
#include "spank_jail/guards/controller/double_unlock.h"
#include "spank_jail/guards/controller/host_names.h"
#include "spank_jail/guards/common/array_sizes.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/large_messages.h"
#include "spank_jail/guards/controller/long_requests.h"
#include "spank_jail/guards/common/node_names.h"
#include "spank_jail/guards/controller/saved_answers.h"
#include "spank_jail/guards/controller/srun_messages.h"
#include "spank_jail/guards/controller/state_saves.h"
#include "spank_jail/guards/controller/step_arrays.h"
#include "spank_jail/guards/controller/tres_texts.h"
#include "spank_jail/guards/controller/unsent_records.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char plugin_name[], plugin_type[];
EXPORT extern const uint32_t plugin_version;
EXPORT int init(void);
EXPORT int job_submit(job_desc_msg_t *job, uint32_t user, char **message);
EXPORT int job_modify(job_desc_msg_t *change, void *job, uint32_t user, char **message);

/* Fewer than the bits that slurmctld has for them (MAX_FEATURES). */
#define MOST_FEATURES 60
/* Letters; slurmctld has this bound for most texts of a job. */
#define LONGEST 1024
/* Of a job, and their letters; slurmctld has a bound of 131,072 letters alone. A change can be one of each task of an array, and a
 * component one of many. */
#define MOST_DEPENDENCIES 1024
#define MOST_OF_MANY 128
#define LONGEST_DEPENDENCY 16384
/* Of a number in it: 32 bits have room for one. */
#define MOST_DIGITS 9
/* Of the texts of a job that have no bound in slurmctld, or one of 131,072 letters each, together: with all else, records of
 * MaxJobCount (10,000) jobs are less than 4 GB. */
#define LONGEST_TOGETHER 131072
/* The command with its options, which slurmctld keeps for people to see. */
#define LONGEST_COMMAND 16384
/* Of 20.11. */
#define FIRST_PROTOCOL 36

const char plugin_name[] = "Job submit plugin of the jail", plugin_type[] = "job_submit/jail";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* The version of the protocol of this Slurm: one more, in its upper byte, with each release. 0: of a release that was not there yet. */
static uint16_t protocol(void)
{
	static const uint32_t releases[] = {
		SLURM_VERSION_NUM(20, 11, 0), SLURM_VERSION_NUM(21, 8, 0), SLURM_VERSION_NUM(22, 5, 0),
		SLURM_VERSION_NUM(23, 2, 0), SLURM_VERSION_NUM(23, 11, 0), SLURM_VERSION_NUM(24, 5, 0),
		SLURM_VERSION_NUM(24, 11, 0), SLURM_VERSION_NUM(25, 5, 0), SLURM_VERSION_NUM(25, 11, 0),
		SLURM_VERSION_NUM(26, 5, 0),
	};
	const uint32_t this_one = SLURM_VERSION_NUM(SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER), SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER), 0);

	for (size_t i = 0; i < sizeof(releases) / sizeof(releases[0]); i++)
		if (releases[i] == this_one)
			return (uint16_t)((FIRST_PROTOCOL + i) << 8);
	return 0;
}

/* Says what is open to users when a guard could not be set; `unknown`: how slurmctld does what is guarded. */
static void complain(int missing, const struct jail_error *err, const char *open, const char *unknown)
{
	char text[sizeof(*err)];

	if (missing)
		slurm_error("job_submit/jail: %s: %s", open, missing < 0 ? jail_error_format(err, text, sizeof(text)) : unknown);
}

static void complain_of_records(int missing, const struct jail_error *err)
{
	complain(missing, err, "if this slurmctld is killed while slurmdbd is away, jobs of then are missing in the accounting",
		 "it keeps its records in an unknown way");
}

static const slurm_conf_t *find_configuration(void)
{
	return dlsym(RTLD_DEFAULT, "slurm_conf");
}

/* What slurmctld starts with is its administrator's, and so are its own hosts. */
static bool is_host_of_administrator(const char *host)
{
	const slurm_conf_t *configuration = dlsym(RTLD_DEFAULT, "slurm_conf");
	bool is_one = !jail_saves_have_begun();

	for (uint32_t i = 0; !is_one && configuration && i < configuration->control_cnt; i++)
		is_one = configuration->control_addr[i] && !strcasecmp(configuration->control_addr[i], host);
	return is_one;
}

static void complain_of_host(void)
{
	slurm_error("job_submit/jail: no address is known of the host of an srun or salloc, which is not told what becomes of its job");
}

/* slurmctld calls it when it has loaded this. */
int init(void)
{
	struct jail_error error = { 0 };
	const struct link_map *slurmctld = jail_imports_program(), *libslurm = jail_imports_library("libslurm");
	int missing = slurmctld ? jail_large_messages_guard(slurmctld, libslurm, NULL, &error) : 1;

	complain(missing, &error, "users can fill the memory of this slurmctld by large messages",
		 "it receives them in an unknown way");
	missing = jail_array_sizes_guard(libslurm, &error);
	complain(missing, &error, "a user's message of billions of elements stops this slurmctld", "it makes room for them in an unknown way");
	missing = jail_long_requests_guard(libslurm, &error);
	complain(missing, &error, "a user's request for a million jobs stops this slurmctld",
		 "it reads requests in an unknown way");
	if (slurmctld && jail_double_unlock_guard(slurmctld, &error))
		slurm_error("job_submit/jail: a user's sbcast for a step that there is none of stops this slurmctld: its locks are "
			    "unknown");
	missing = slurmctld ? jail_node_names_guard(slurmctld, &error) : 1;
	complain(missing, &error, "a user's list of billions of nodes stops this slurmctld",
		 "it reads lists in an unknown way");
	missing = slurmctld ? jail_bit_ranges_guard(slurmctld, &error) : 1;
	complain(missing, &error, "users can fill the memory of this slurmctld by ranges of numbers",
		 "it reads them in an unknown way");
	missing = slurmctld ? jail_tres_texts_guard(slurmctld, &error) : 1;
	complain(missing, &error, "a user's step with thousands of resources stops this slurmctld",
		 "it looks at them in an unknown way");
	missing = jail_step_arrays_guard(libslurm, &error);
	complain(missing, &error, "a user's word of a finished step stops this slurmctld",
		 "it reads the figures of steps in an unknown way");
	missing = slurmctld ? jail_host_names_guard(slurmctld, is_host_of_administrator, complain_of_host, &error) : 1;
	complain(missing, &error, "a user's srun on a host that there is none of stops this slurmctld",
		 "it looks for addresses in an unknown way");
	missing = slurmctld ? jail_srun_messages_guard(slurmctld, libslurm, &error) : 1;
	complain(missing, &error, "a user's srun or squeue that is stopped keeps this slurmctld from others",
		 "it sends messages in an unknown way");
	missing = jail_saves_hasten(&error);
	complain(missing, &error, "if this slurmctld is killed, it loses jobs of the last five seconds",
		 "it saves its records in an unknown way");
	int number = jail_unsent_records_keep(protocol(), complain_of_records);
	if (number)
		complain_of_records(jail_fail(&error, "pthread_create", number, "no thread can be started"), &error);
	return SLURM_SUCCESS;
}

static void set_switch(uint16_t *value)
{
	if (*value > 1 && *value != NO_VAL16)
		*value = 1;
}

/* slurmctld notes in 64 bits which of a list's features nodes have, and for the 65th writes beyond them: "[a|a|a|...]". */
static bool has_many_features(const char *features)
{
	size_t signs = 0;

	for (; features && *features; features++)
		signs += strchr("|&,", *features) != NULL;
	return signs >= MOST_FEATURES;
}

/* slurmctld compares each license of a list with all before it, its locks held. Its own bound, of each of these texts in
 * other places, is not asked for here. */
static bool is_long(const char *text)
{
	return text && strnlen(text, LONGEST + 1) > LONGEST;
}

/* Behind a bracket, "0-7,9]": how many, more than there may be when Slurm could read it otherwise. */
static size_t count_tasks(const char **text)
{
	const char *rest = *text;
	size_t count = 0;
	long last = 0;
	bool is_range = false;

	for (; *rest && *rest != ']'; rest++) {
		size_t digits = strspn(rest, "0123456789");
		if (digits > MOST_DIGITS || (!digits && !strchr(",-:", *rest)))
			return MOST_DEPENDENCIES + 1;
		if (digits) {
			long number = strtol(rest, NULL, 10);
			count += is_range && number > last ? (size_t)(number - last) : 1;
			last = number;
			rest += digits - 1;
		}
		is_range = *rest == '-';
	}
	*text = *rest ? rest : rest - 1;
	return count;
}

/* slurmctld writes each task of "afterok:1_[0-1000]" out as a job of its own, and compares each job with all before it, its locks
 * held: 80,000 took half a minute, and they need not exist. */
static bool has_many_dependencies(const char *jobs, size_t most)
{
	size_t count = 0;

	if (jobs && strnlen(jobs, LONGEST_DEPENDENCY + 1) > LONGEST_DEPENDENCY)
		return true;
	for (; jobs && *jobs && count <= most; jobs++)
		if (*jobs == '[') {
			jobs++;
			count += count_tasks(&jobs);
		} else {
			count += strchr(":,?", *jobs) != NULL;
		}
	return count > most;
}

/* Without an end: of a list there can be more. */
static size_t measure(char *const *texts, uint32_t count)
{
	size_t length = 0;

	for (uint32_t i = 0; texts && i < count && length <= LONGEST_TOGETHER; i++)
		length += 1 + (texts[i] ? strlen(texts[i]) : 0);
	return length;
}

/* slurmctld writes all jobs into one buffer of 4 GB, and leaves out what has no room there. It reads such records no more: it
 * does not start. */
static bool has_long_texts(const job_desc_msg_t *job)
{
	char *const texts[] = {
		job->acctg_freq, job->clusters, job->container, job->cpu_bind, job->mem_bind, job->exc_nodes, job->req_nodes,
		job->origin_cluster, job->req_context, job->resp_host, job->selinux_context, job->x11_magic_cookie, job->x11_target,
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0)
		job->container_id,
#endif
	};

	return measure(texts, sizeof(texts) / sizeof(texts[0])) + measure(job->argv, job->argc) +
		       measure(job->spank_job_env, job->spank_job_env_size) > LONGEST_TOGETHER;
}

static int check_texts(const job_desc_msg_t *job)
{
	if (has_many_features(job->features) || has_many_features(job->prefer) || has_many_features(job->batch_features))
		return ESLURM_INVALID_FEATURE;
	if (has_long_texts(job))
		return ESLURM_PATHNAME_TOO_LONG;
	if (is_long(job->licenses) || is_long(job->batch_features) || is_long(job->cluster_features))
		return ESLURM_PATHNAME_TOO_LONG;
	return SLURM_SUCCESS;
}

/* GPUs, and whatever else is in GresTypes. */
static bool has_gres(void)
{
	const slurm_conf_t *configuration = find_configuration();

	return configuration && configuration->gres_plugins && *configuration->gres_plugins;
}

static int set_switches(job_desc_msg_t *job)
{
	if (job->overcommit > 1 && job->overcommit != NO_VAL8)
		job->overcommit = 1;
	set_switch(&job->contiguous);
	set_switch(&job->kill_on_node_fail);
	set_switch(&job->requeue);
	/* slurmctld divides by it when it looks for nodes: it ends, each time that it starts with such a job. */
	if (!job->ntasks_per_socket)
		job->ntasks_per_socket = NO_VAL16;
	/* sbatch --spread-job --gpus=2: slurmctld (24.11) writes through a null pointer when it looks for nodes. A job can ask for GPUs
	 * later, and whether it is to be spread is not to be seen here then. */
	if (has_gres())
		job->bitflags &= ~(uint64_t)SPREAD_JOB;
#ifdef STEPMGR_ENABLED
	/* sbatch --stepmgr: a slurmstepd of root's, outside of the jail, would read what a user asks for steps, which slurmctld does
	 * otherwise, behind this plugin's guards. */
	job->bitflags &= ~(uint64_t)STEPMGR_ENABLED;
#endif
	return check_texts(job);
}

int job_submit(job_desc_msg_t *job, uint32_t user, char **message)
{
	(void)user;
	(void)message;
	/* Clusters of a federation tell each other these, after this function. Of a user's submission slurmctld looks them up in
	 * its federation, without a look whether it is in one. */
	job->fed_siblings_active = 0;
	job->fed_siblings_viable = 0;
	if (job->submit_line && strlen(job->submit_line) > LONGEST_COMMAND)
		job->submit_line[LONGEST_COMMAND] = 0;
	const bool is_component = job->het_job_offset && job->het_job_offset != NO_VAL;
	int refused = set_switches(job);
	if (!refused && has_many_dependencies(job->dependency, is_component ? MOST_OF_MANY : MOST_DEPENDENCIES))
		refused = ESLURM_DEPENDENCY;
	/* sbatch says that there is a job, and goes; srun and salloc wait for theirs. */
	if (job->script && !refused)
		jail_answers_await_save();
	return refused;
}

/* Releases differ in whether there is a `message`. */
int job_modify(job_desc_msg_t *change, void *job, uint32_t user, char **message)
{
	(void)job;
	(void)user;
	(void)message;
	return has_many_dependencies(change->dependency, MOST_OF_MANY) ? ESLURM_DEPENDENCY : set_switches(change);
}
