#define _GNU_SOURCE
#include "step.h"

#include <stdio.h>

#include "../core/filesystem.h"
#include "../core/namespace.h"
#include "../core/resolve.h"
#include "../core/scoped.h"
#include "../core/sys.h"
#include "../core/tree.h"
#include "../core/trust.h"
#include "job_mounts.h"
#include "streams.h"

/* The node's own answers for what the C library reads: never all of /etc, the munge key is there. */
static const char *const node_files[] = {
	"/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", NULL,
};

struct build {
	struct jail_step *step;
	const struct jail_plan *plan;
	struct jail_job_mounts job_mounts;
};

static int give_job_mount(void *context, const struct jail_entry *entry, struct jail_error *err)
{
	struct build *build = context;

	(void)err;
	return jail_job_mounts_give(&build->job_mounts, (size_t)(entry - build->plan->entries));
}

static void pass_notice(void *context, const char *text)
{
	struct build *build = context;

	if (build->step->notice)
		build->step->notice(NULL, text);
}

static int seal(void *context, struct jail_error *err)
{
	struct jail_step *step = context;
	scoped_fd root = sys_open(".", O_PATH | O_DIRECTORY);

	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's tree");
	if (step->options.readonly && jail_tree_readonly(root, err))
		return -1;
	return jail_spool_seal(&step->spool, err);
}

/* slurmstepd's /tmp must be the tasks': PMIx makes its directory in the window, uses it after the
 * return, and the tasks look for it under the same path. */
static int share_tmp(int root, struct jail_error *err)
{
	scoped_fd tmp = jail_resolve(root, "/tmp", O_DIRECTORY, err);
	if (tmp < 0)
		return -1;
	scoped_fd mount = sys_open_tree(tmp, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
	if (mount < 0 || sys_mount_setattr(mount, "", AT_EMPTY_PATH,
					   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, 0) ||
	    sys_move_mount(mount, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH)) {
		jail_fail(err, "move_mount", errno, "cannot share the jail's /tmp with slurmstepd");
		return jail_error_at(err, NULL, 0, "/tmp");
	}
	return 0;
}

/* In slurmstepd's own namespace: the tree, the tasks' namespace, the window. */
static int build_inside(struct build *build, struct jail_error *err)
{
	struct jail_step *step = build->step;
	const char *path = step->arguments.root;
	const struct jail_setup setup = { build->plan, give_job_mount, pass_notice, build };
	const struct jail_window_parts parts = { step->arguments.window, node_files, step->spool.path };

	scoped_fd root = jail_tree_attach(path, err);
	step->attached = root >= 0;
	if (root < 0 || jail_tree_apply(root, &setup, err) ||
	    jail_spool_attach(&step->spool, root, step->job, step->step, err) || share_tmp(root, err))
		return -1;
	step->namespace = jail_namespace_pivoted(path, seal, step, err);
	if (step->namespace < 0)
		return -1;
	return jail_window_open(path, &parts, &step->window, err);
}

static int build_with_plan(struct build *build, struct jail_error *err)
{
	if (jail_job_mounts_take(build->plan, build->step->job, &build->job_mounts, err))
		return -1;
	int result = jail_namespace_private(err);
	build->step->private = !result;
	if (!result)
		result = jail_job_mounts_hide(build->step->job, err) || build_inside(build, err) ? -1 : 0;
	jail_job_mounts_close(&build->job_mounts);
	return result;
}

int jail_step_open(struct jail_step *step, struct jail_error *err)
{
	const struct jail_arguments *arguments = &step->arguments;
	struct jail_plan plan;

	if (jail_spool_path(arguments->spool, step->node, step->spool.path, err))
		return -1;
	scoped_fd root = jail_open_trusted(arguments->root, 1, "jail root", err);
	if (root < 0)
		return -1;
	scoped_fd file = jail_open_trusted(arguments->plan, 0, "mount plan", err);
	if (file < 0 || jail_plan_read_fd(file, arguments->plan, &plan, err))
		return -1;
	/* Of the namespace we are about to leave; what follows goes by path again. */
	jail_close(&root);
	struct build build = { step, &plan, { NULL, 0 } };
	int result = jail_options_apply(&step->options, arguments, step->spool.path, &plan, err);
	if (!result)
		result = build_with_plan(&build, err);
	jail_plan_free(&plan);
	if (result)
		jail_step_close(step);
	return result;
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
	const struct jail_window_parts parts = { step->arguments.window, node_files, spool };
	struct jail_plan plan;

	scoped_fd place = spool ? jail_resolve_create(tree, spool, JAIL_CREATE_DIR, err) : -1;
	if ((spool && place < 0) || jail_plan_parse(fallback_plan, sizeof(fallback_plan) - 1, "fallback plan", &plan, err))
		return -1;
	const struct jail_setup setup = { .plan = &plan };
	int result = jail_tree_apply(tree, &setup, err) || jail_window_open(path, &parts, &step->window, err) ? -1 : 0;
	jail_plan_free(&plan);
	return result;
}

static int open_bare_root(struct jail_step *step, struct jail_error *err)
{
	scoped_fd trusted = jail_open_trusted(step->arguments.root, 1, "jail root", err);
	if (trusted < 0)
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
	if (!step->private && jail_namespace_private(err))
		return -1;
	step->private = true;
	if (step->attached && sys_umount2(step->arguments.root, JAIL_MNT_DETACH))
		return jail_fail(err, "umount2", errno, "cannot take the half-built tree away");
	step->attached = false;
	return open_bare_root(step, err) && open_nothing(step, err) ? -1 : 0;
}

static int show_pmix(void *context, struct jail_error *err)
{
	struct jail_step *step = context;

	return jail_spool_show_pmix(&step->spool, err);
}

int jail_step_return(struct jail_step *step, struct jail_error *err)
{
	int result = jail_window_close(&step->window, show_pmix, step, err);

	jail_spool_close(&step->spool);
	return result;
}

int jail_step_enter(struct jail_step *step, struct jail_error *err)
{
	if (step->namespace < 0)
		return jail_fail(err, NULL, 0, "the step's jail was not built; see the error before this one");
	if (jail_streams_seal(err) || jail_namespace_join(step->namespace, err))
		return -1;
	jail_step_close(step);
	return 0;
}

void jail_step_close(struct jail_step *step)
{
	jail_close(&step->namespace);
	jail_close(&step->window.tree);
	jail_close(&step->window.root);
	jail_spool_close(&step->spool);
}
