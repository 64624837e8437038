/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the files and namespaces that a step needs until it is in the jail, or makes them for the job's first step.
 * fallback_window.c and enter_step.c call it. */
#define _GNU_SOURCE
#include "open_step.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "native/cdi/cdi.h"
#include "native/mount/namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/trust.h"
#include "spank_jail/job/job_mounts.h"

const char *const jail_node_files[] = {
	"/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", NULL,
};

/* What else than files makes one tree differ from another. */
static int begin_record(struct jail_opening *opening, struct jail_error *err)
{
	const struct jail_step *step = opening->step;
	const struct jail_options *options = &step->options;

	char pids[32] = "";
	struct stat st;

	/* Its processes are what the tasks' /proc shows. */
	if (step->pids >= 0 && !fstat(step->pids, &st))
		snprintf(pids, sizeof(pids), "%lu", (unsigned long)st.st_ino);
	if (jail_record_begin(&opening->record, opening->plan, opening->root, err) ||
	    jail_record_add_text(&opening->record, pids, err) || jail_record_add_text(&opening->record, jail_level_name(step->arguments.level), err) ||
	    jail_record_add_text(&opening->record, step->arguments.root, err) ||
	    jail_record_add_text(&opening->record, step->spool.path, err) ||
	    jail_record_add_text(&opening->record, options->readonly ? "ro" : "rw", err) ||
	    jail_record_add_text(&opening->record, options->nosuid ? "nosuid" : "suid", err))
		return -1;
	/* The user is the job's, always the same. */
	for (size_t i = 0; i < options->n_binds; i++)
		if (jail_record_add_text(&opening->record, options->binds[i].source, err) ||
		    jail_record_add_text(&opening->record, options->binds[i].target, err) ||
		    jail_record_add_text(&opening->record, options->binds[i].readonly ? "ro" : "rw", err))
			return -1;
	return 0;
}

/* Also what is in it: a specification is rewritten in place, and new ones come into its directory. */
static int add_specification(void *record, const char *path, struct jail_error *err)
{
	return jail_record_add(record, path, true, err);
}

static int record_entry(struct jail_record *record, const struct jail_entry *entry, struct jail_error *err)
{
	if (entry->only_if && jail_record_add(record, entry->only_if, false, err))
		return -1;
	if (entry->type == JAIL_BIND || entry->type == JAIL_RBIND)
		return jail_record_add(record, entry->source, false, err);
	return entry->type == JAIL_CDI ? jail_cdi_dependencies(entry, add_specification, record, err) : 0;
}

static int record_sources(struct jail_opening *opening, const struct jail_plan *plan, struct jail_error *err)
{
	struct jail_record *record = &opening->record;

	for (size_t i = 0; i < plan->n_entries; i++)
		if (record_entry(record, &plan->entries[i], err))
			return -1;
	for (const char *const *own = opening->parts.directories; *own; own++)
		if (jail_record_add(record, *own, false, err))
			return -1;
	for (const char *const *own = opening->parts.files; *own; own++)
		if (jail_record_add(record, *own, false, err))
			return -1;
	return jail_record_add(record, opening->sealed, false, err);
}

/* Variables that cdi lines set; later steps find them in the record. */
static int record_environment(struct jail_opening *opening, const struct jail_plan *plan, struct jail_error *err)
{
	struct jail_environment environment;
	int result = jail_cdi_environment(plan, &environment, err);

	if (result)
		return result;
	for (size_t i = 0; i < environment.n && !result; i++)
		result = jail_record_add_value(&opening->record, environment.variables[i], err);
	jail_environment_free(&environment);
	return result;
}

/* A tmpfs of the step's own makes the whole tree the step's own. */
static bool is_per_step(const struct jail_plan *plan)
{
	for (size_t i = 0; i < plan->n_entries; i++)
		if (plan->entries[i].scope == JAIL_SCOPE_STEP)
			return true;
	return false;
}

static int make_with_plan(struct jail_opening *opening, const struct jail_plan *plan, struct jail_error *err)
{
	const struct jail_step *step = opening->step;
	struct jail_home home = JAIL_HOME_NONE;
	struct jail_error back;

	scoped_fd spool = jail_spool_take_view(opening->directory, err);
	int *mounts = spool < 0 ? NULL : jail_job_mounts_take(opening->directory, plan, err);
	/* Noted before it is used: what is replaced meanwhile shows as a difference later. */
	if (!mounts || record_sources(opening, plan, err) || record_environment(opening, plan, err) ||
	    jail_namespace_leave(&home, err)) {
		jail_job_mounts_close(mounts, plan);
		return -1;
	}
	scoped_fd own = jail_namespace_ipc(err);
	const struct jail_namespaces_request request = {
		home.namespace, step->arguments.root, plan, step->arguments.level, step->options.readonly,
		step->options.nosuid, step->pids, mounts, &step->spool, spool, &opening->parts, step->notice,
	};
	/* The plan's mqueue is that of the namespace in which it is mounted. */
	int result = own < 0 || jail_namespace_enter_ipc(step->ipc, err) ? -1 : jail_namespaces_make(&request, &opening->namespaces, err);
	jail_job_mounts_close(mounts, plan);
	if ((own >= 0 && jail_namespace_enter_ipc(own, &back)) || jail_namespace_return(&home, &back)) {
		*err = back;
		return -1;
	}
	return result;
}

static void tell_unkept(const struct jail_step *step, const struct jail_error *err)
{
	char line[1400];

	if (step->notice)
		step->notice(NULL, jail_error_format(err, line, sizeof(line)));
}

/* A mount point without its volume, or a tree that somebody began by hand: told before the plan's lines
 * make directories in it. */
int jail_opening_check_root(int root, const char *path, struct jail_error *err)
{
	static const char *const needed[] = { "usr", "etc" };
	struct stat st;

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		int number = fstatat(root, needed[i], &st, AT_SYMLINK_NOFOLLOW) ? errno
			     : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
		if (!number)
			continue;
		jail_fail(err, "fstatat", number, "the jail root has no directory \"%s\": it is not, or only half, assembled; "
			  "is its volume mounted on this node, and did `jail assemble` end well?", needed[i]);
		return jail_error_at(err, NULL, 0, path);
	}
	return 0;
}

static int make(struct jail_opening *opening, struct jail_error *err)
{
	const struct jail_step *step = opening->step;
	struct jail_error unkept;
	struct jail_plan plan;

	if (jail_opening_check_root(opening->root, step->arguments.root, err))
		return -1;
	if (jail_plan_read_fd(opening->plan, step->arguments.plan, &plan, err))
		return -1;
	int result = jail_options_apply(&step->options, &step->arguments, step->spool.path, &plan, err);
	if (!result)
		result = make_with_plan(opening, &plan, err);
	bool reusable = !result && opening->namespaces.mounts >= 0 && !is_per_step(&plan);
	jail_plan_free(&plan);
	opening->record.mounts = opening->namespaces.mounts;
	/* That they cannot be kept costs later steps time, and this one nothing. */
	opening->keep = reusable && !jail_namespaces_keep(opening->directory, &opening->record, &opening->namespaces, &unkept);
	if (reusable && !opening->keep)
		tell_unkept(step, &unkept);
	return result;
}

static void close_sources(struct jail_opening *opening)
{
	jail_record_free(&opening->record);
	jail_close(&opening->plan);
	jail_close(&opening->root);
}

/* Namespaces that were made before: then plan and jail root were found trustworthy, and when they are the same
 * files with the same owners and modes they need not be looked at again, nor what lies above them. */
static bool find_namespaces(struct jail_opening *opening)
{
	const struct jail_arguments *arguments = &opening->step->arguments;
	struct jail_error ignored;

	opening->plan = open(arguments->plan, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	opening->root = open(arguments->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return opening->plan >= 0 && opening->root >= 0 && !begin_record(opening, &ignored) &&
	       jail_namespaces_find(opening->directory, &opening->record, &opening->namespaces);
}

int jail_opening_make_namespaces(struct jail_opening *opening, struct jail_error *err)
{
	const struct jail_arguments *arguments = &opening->step->arguments;

	close_sources(opening);
	opening->root = jail_open_trusted(arguments->root, 1, "jail root", err);
	opening->plan = opening->root < 0 ? -1 : jail_open_trusted(arguments->plan, 0, "mount plan", err);
	return opening->plan < 0 || begin_record(opening, err) ? -1 : make(opening, err);
}

int jail_opening_get_namespaces(struct jail_opening *opening, struct jail_error *err)
{
	opening->step->found = opening->keep = find_namespaces(opening);
	return opening->keep ? 0 : jail_opening_make_namespaces(opening, err);
}

void jail_opening_close(struct jail_opening *opening)
{
	jail_namespaces_close(&opening->namespaces);
	close_sources(opening);
	jail_pid_view_free(&opening->processes);
	jail_plan_free(&opening->lines);
	/* The init's mount goes with the process: dissolving it takes an RCU grace period. */
}
