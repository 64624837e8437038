#define _GNU_SOURCE
#include "step.h"

#include <fcntl.h>
#include <limits.h>
#include <slurm/slurm.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../core/cdi.h"
#include "../core/confine.h"
#include "../core/filesystem.h"
#include "../core/namespace.h"
#include "../core/pid.h"
#include "../core/resolve.h"
#include "../core/scoped.h"
#include "../core/sys.h"
#include "../core/tree.h"
#include "../core/trust.h"
#include "job_mounts.h"
#include "record.h"
#include "streams.h"
#include "views.h"

/* The node's own answers for what the C library reads: never all of /etc, the munge key is there. */
static const char *const node_files[] = {
	"/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", NULL,
};

/* What a step works with while it has not entered the window. */
struct opening {
	struct jail_step *step;
	int plan, root;   /* opened; the record says whether they are those once found trustworthy */
	int directory;    /* the job's, locked */
	struct jail_record record;
	struct jail_views views;
	bool keep;        /* the views may serve later steps */
	struct jail_plan lines; /* at level pid */
	struct jail_pid_view processes; /* those that the step adds to the tasks' namespace, */
	int init;         /* and the program that does, or -1 */
	int script;       /* the job's directory in the spool, for a batch script; else -1 */
	struct jail_window_parts parts;
	char sealed[PATH_MAX]; /* conf-cache in the spool */
};

/* What else than files makes one tree differ from another. */
static int begin_record(struct opening *opening, struct jail_error *err)
{
	const struct jail_step *step = opening->step;
	const struct jail_options *options = &step->options;

	if (jail_record_begin(&opening->record, opening->plan, opening->root, err) ||
	    jail_record_add_text(&opening->record, jail_level_name(step->arguments.level), err) ||
	    jail_record_add_text(&opening->record, step->arguments.root, err) ||
	    jail_record_add_text(&opening->record, step->spool.path, err) ||
	    jail_record_add_text(&opening->record, options->readonly ? "ro" : "rw", err))
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

static int record_sources(struct opening *opening, const struct jail_plan *plan, struct jail_error *err)
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
static int record_environment(struct opening *opening, const struct jail_plan *plan, struct jail_error *err)
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

static int make_with_plan(struct opening *opening, const struct jail_plan *plan, struct jail_error *err)
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
	const struct jail_views_request request = {
		home.namespace, step->arguments.root, plan, step->arguments.level, step->options.readonly, mounts,
		&step->spool, spool, &opening->parts, step->notice,
	};
	int result = jail_views_make(&request, &opening->views, err);
	jail_job_mounts_close(mounts, plan);
	if (jail_namespace_return(&home, &back)) {
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
static int check_root(int root, const char *path, struct jail_error *err)
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

static int make(struct opening *opening, struct jail_error *err)
{
	const struct jail_step *step = opening->step;
	struct jail_error unkept;
	struct jail_plan plan;

	if (check_root(opening->root, step->arguments.root, err))
		return -1;
	if (jail_plan_read_fd(opening->plan, step->arguments.plan, &plan, err))
		return -1;
	int result = jail_options_apply(&step->options, &step->arguments, step->spool.path, &plan, err);
	if (!result)
		result = make_with_plan(opening, &plan, err);
	bool reusable = !result && opening->views.mounts >= 0 && !is_per_step(&plan);
	jail_plan_free(&plan);
	opening->record.mounts = opening->views.mounts;
	/* That they cannot be kept costs later steps time, and this one nothing. */
	opening->keep = reusable && !jail_views_keep(opening->directory, &opening->record, &opening->views, &unkept);
	if (reusable && !opening->keep)
		tell_unkept(step, &unkept);
	return result;
}

/* In the views: opens the window's root and makes the tasks' copy. Returns 0, -1, or 1 when the tasks'
 * namespace has lost mounts: somebody removed, elsewhere, a directory that one was on. */
static int visit(struct opening *opening, int *inside, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	struct jail_views *views = &opening->views;

	if (jail_namespace_enter(views->window, err))
		return -1;
	*inside = sys_open("/", O_PATH | O_DIRECTORY);
	if (*inside < 0)
		return jail_fail(err, "open", errno, "cannot open the window's root");
	if (jail_namespace_enter(views->tasks, err))
		return -1;
	if (step->found && jail_namespace_count() != views->mounts)
		return 1;
	if (!opening->keep)
		step->namespace = jail_keep(&views->tasks);
	else if (jail_namespace_branch(&step->namespace, err))
		return -1;
	return opening->script < 0 ? 0 : jail_spool_show_script(&step->spool, opening->script, err);
}

/* Where slurmstepd sees the node's /proc. */
static int start_pids(struct opening *opening, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	const struct jail_pid_request request = {
		opening->init, step->namespace, -1, &opening->processes, step->arguments.level,
	};

	step->own_pids = jail_pid_own(err);
	step->pids = step->own_pids < 0 ? -1 : jail_pid_start(&request, err);
	return step->pids < 0 ? -1 : 0;
}

/* Not part of the record: what is taken here is the step's own. */
static int take_processes(struct opening *opening, struct jail_error *err)
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
static int go_in(struct opening *opening, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	struct jail_home home = JAIL_HOME_NONE;
	struct jail_error back;
	scoped_fd inside = -1;

	if (jail_namespace_leave(&home, err))
		return -1;
	int result = visit(opening, &inside, err);
	if (!result && (jail_namespace_enter(opening->views.home, err) || sys_fchdir(home.cwd)))
		result = jail_fail(err, "fchdir", errno, "cannot take slurmstepd's working directory along");
	if (!result && step->arguments.level >= JAIL_LEVEL_PID)
		result = start_pids(opening, err);
	if (!result) {
		step->window.tree = jail_keep(&opening->views.window);
		result = jail_window_enter(&step->window, inside, step->user == 0, err);
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

static void close_sources(struct opening *opening)
{
	jail_record_free(&opening->record);
	jail_close(&opening->plan);
	jail_close(&opening->root);
}

/* Views that were made before: then plan and jail root were found trustworthy, and when they are the same
 * files with the same owners and modes they need not be looked at again, nor what lies above them. */
static bool find_views(struct opening *opening)
{
	const struct jail_arguments *arguments = &opening->step->arguments;
	struct jail_error ignored;

	opening->plan = open(arguments->plan, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	opening->root = open(arguments->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return opening->plan >= 0 && opening->root >= 0 && !begin_record(opening, &ignored) &&
	       jail_views_find(opening->directory, &opening->record, &opening->views);
}

static int make_views(struct opening *opening, struct jail_error *err)
{
	const struct jail_arguments *arguments = &opening->step->arguments;

	close_sources(opening);
	opening->root = jail_open_trusted(arguments->root, 1, "jail root", err);
	opening->plan = opening->root < 0 ? -1 : jail_open_trusted(arguments->plan, 0, "mount plan", err);
	return opening->plan < 0 || begin_record(opening, err) ? -1 : make(opening, err);
}

/* Finds or makes them. Returns 0 or -1. */
static int get_views(struct opening *opening, struct jail_error *err)
{
	opening->step->found = opening->keep = find_views(opening);
	return opening->keep ? 0 : make_views(opening, err);
}

static int open_step(struct opening *opening, struct jail_error *err)
{
	struct jail_step *step = opening->step;
	scoped_fd script = step->step == SLURM_BATCH_SCRIPT ? jail_spool_take_script(&step->spool, err) : -1;

	if (script < 0 && step->step == SLURM_BATCH_SCRIPT && err->number != ENOENT)
		return -1;
	opening->script = script;
	if (take_processes(opening, err))
		return -1;
	int result = get_views(opening, err) ? -1 : go_in(opening, err);
	if (result <= 0)
		return result;
	jail_views_close(&opening->views);
	jail_views_drop(opening->directory);
	step->found = false;
	return make_views(opening, err) || go_in(opening, err) ? -1 : 0;
}

/* Opens what the step rests on, and lets `work` go on with the job's directory locked. */
static int with_job(struct jail_step *step, int (*work)(struct opening *, struct jail_error *), struct jail_error *err)
{
	const struct jail_arguments *arguments = &step->arguments;
	struct opening opening = {
		.step = step, .plan = -1, .root = -1, .views = JAIL_VIEWS_NONE, .init = -1, .script = -1,
	};

	if (jail_spool_path(arguments->spool, step->node, step->spool.path, err))
		return -1;
	if (snprintf(opening.sealed, sizeof(opening.sealed), "%s/conf-cache", step->spool.path) >= (int)sizeof(opening.sealed))
		return jail_fail(err, NULL, 0, "SlurmdSpoolDir is too long");
	opening.parts = (struct jail_window_parts){ arguments->window, node_files, step->spool.path, opening.sealed };
	scoped_fd directory = jail_job_open(step->job, err);
	if (directory < 0)
		return -1;
	/* The extern step is the first of a job on a node: what is there is of an earlier run of the job, one
	 * that was requeued and had no epilog here. */
	if (step->step == SLURM_EXTERN_CONT && jail_job_is_deserted(directory) && jail_job_mounts_clear(directory, err))
		return -1;
	step->presence = jail_job_stay(directory, err);
	if (step->presence < 0)
		return -1;
	opening.directory = directory;
	int result = jail_spool_prepare(&step->spool, directory, step->job, step->step, err) ? -1 : work(&opening, err);
	const char *value = NULL;
	while (!result && step->variable && (value = jail_record_value(&opening.record, value)))
		step->variable(step->context, value);
	jail_views_close(&opening.views);
	close_sources(&opening);
	jail_pid_view_free(&opening.processes);
	jail_plan_free(&opening.lines);
	/* The init's mount goes with the process: dissolving it takes an RCU grace period. */
	return result;
}

int jail_step_open(struct jail_step *step, struct jail_error *err)
{
	return with_job(step, open_step, err);
}

int jail_step_prepare(struct jail_step *step, struct jail_error *err)
{
	return with_job(step, get_views, err);
}

/* Attaches an empty directory at `path`, with places for what the window shows. */
static int attach_nothing(const struct jail_step *step, const char *path, struct jail_error *err)
{
	static const struct jail_parameter parameters[] = { { "size", "1m" }, { "mode", "0755" } };
	scoped_fd mount = jail_filesystem_new("tmpfs", parameters, 2, MOUNT_ATTR_NODEV, err);

	if (mount < 0)
		return -1;
	if (sys_move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot attach an empty root");
	/* Where Slurm goes when the job's directory is not there; without it the step ends with no word. */
	scoped_fd tmp = jail_resolve_create(mount, "/tmp", JAIL_CREATE_DIR, err);
	if (tmp < 0)
		return -1;
	for (const char *const *own = step->arguments.window; *own; own++) {
		scoped_fd made = jail_resolve_create(mount, *own, JAIL_CREATE_DIR, err);
		if (made < 0)
			return -1;
	}
	return jail_keep(&mount);
}

/* What Slurm needs to connect the streams (/dev/null) and, when that fails, to say so to slurmctld from
 * inside: names of hosts, and munge's or sackd's socket, wherever in /run (a socket works on a read-only
 * mount). */
static const char fallback_plan[] =
	"proc /proc proc defaults,x-create=dir\n"
	"dev  /dev  dev  size=64k,x-create=dir\n"
	"/run /run  none rbind,ro,nosuid,noexec,x-create=dir\n"
	"/etc/nsswitch.conf /etc/nsswitch.conf none bind,ro,x-create=file,nofail\n"
	"/etc/hosts /etc/hosts none bind,ro,x-create=file,nofail\n"
	"/etc/resolv.conf /etc/resolv.conf none bind,ro,x-create=file,nofail\n";

/* The window on the tree that is attached at `path`, with no more than the fallback plan in it. */
static int open_bare(struct jail_step *step, int tree, const char *path, struct jail_error *err)
{
	/* Not even the spool may be known, when an argument is wrong. */
	const char *spool = step->spool.path[0] ? step->spool.path : NULL;
	const struct jail_window_parts parts = { step->arguments.window, node_files, spool, NULL };
	struct jail_plan plan;

	scoped_fd place = spool ? jail_resolve_create(tree, spool, JAIL_CREATE_DIR, err) : -1;
	if ((spool && place < 0) || jail_plan_parse(fallback_plan, sizeof(fallback_plan) - 1, "fallback plan", &plan, err))
		return -1;
	const struct jail_setup setup = { .plan = &plan };
	int result = jail_tree_apply(tree, &setup, err) ||
		     jail_window_open(path, &parts, &step->window, step->user == 0, err) ? -1 : 0;
	jail_plan_free(&plan);
	return result;
}

static int open_bare_root(struct jail_step *step, struct jail_error *err)
{
	scoped_fd trusted = jail_open_trusted(step->arguments.root, 1, "jail root", err);
	if (trusted < 0 || check_root(trusted, step->arguments.root, err))
		return -1;
	scoped_fd tree = jail_tree_attach(step->arguments.root, err);
	return tree < 0 ? -1 : open_bare(step, tree, step->arguments.root, err);
}

static int open_nothing(struct jail_step *step, struct jail_error *err)
{
	static const char place[] = "/tmp"; /* any node has it, and only our namespace sees it covered */
	scoped_fd tree = attach_nothing(step, place, err);

	return tree < 0 ? -1 : open_bare(step, tree, place, err);
}

int jail_step_open_fallback(struct jail_step *step, struct jail_error *err)
{
	if (!step->spool.path[0] && jail_spool_path(step->arguments.spool, step->node, step->spool.path, err))
		step->spool.path[0] = '\0';
	if (jail_namespace_private(err))
		return -1;
	return open_bare_root(step, err) && open_nothing(step, err) ? -1 : 0;
}

static int show_pmix(void *context, struct jail_error *err)
{
	struct jail_step *step = context;

	return step->namespace < 0 ? 0 : jail_spool_show_pmix(&step->spool, step->namespace, err);
}

int jail_step_return(struct jail_step *step, struct jail_error *err)
{
	return jail_window_close(&step->window, show_pmix, step, err);
}

int jail_step_enter(struct jail_step *step, struct jail_error *err)
{
	if (step->namespace < 0)
		return jail_fail(err, NULL, 0, "the step's jail was not built; see the error before this one");
	if (step->pids >= 0 && !jail_pid_entered())
		return jail_fail(err, NULL, 0, "the PID namespace of the step has ended, or cannot be entered");
	if (jail_streams_seal(err) || jail_namespace_join(step->namespace, err))
		return -1;
	jail_close(&step->namespace);
	jail_close(&step->window.tree);
	jail_close(&step->window.root);
	jail_close(&step->pids);
	jail_close(&step->own_pids);
	return jail_confine(step->arguments.level, err);
}

int jail_step_confine(struct jail_step *step, struct jail_error *err)
{
	return jail_streams_check(err) || jail_confine_final(step->arguments.level, err) ? -1 : 0;
}
