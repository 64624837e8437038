/* SPDX-License-Identifier: Apache-2.0 */
/* Gives slurmstepd a window with the bare jail, or an empty one, for a step whose jail could not be built. There, and
 * not on the node, it goes on until the error is reported. plugin.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "native/mount/filesystem.h"
#include "native/mount/namespace.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/jail/tree.h"
#include "native/base/trust.h"
#include "open_step.h"
#include "enter_step.h"

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
	/* The MPI plugin makes a directory there by the rights of the user (mpi_files.h). */
	if (fchmodat(mount, "tmp", 01777, 0))
		return jail_fail(err, "fchmodat", errno, "cannot open /tmp of an empty root to the user");
	for (const char *const *own = step->arguments.window; *own; own++) {
		scoped_fd made = jail_resolve_create(mount, *own, JAIL_CREATE_DIR, err);
		if (made < 0)
			return -1;
	}
	return jail_keep(&mount);
}

/* What Slurm needs to connect the streams (/dev/null) and, when that fails, to say so to slurmctld from
 * inside: names of hosts, and munge's or sackd's socket (a socket works on a read-only mount). */
static const char fallback_plan[] =
	"dev  /dev  dev  size=64k,x-create=dir\n"
	"tmpfs /run tmpfs size=64k,mode=755,x-create=dir\n"
	"/run/munge /run/munge none bind,ro,nosuid,noexec,x-create=dir,nofail\n"
	"/run/slurm /run/slurm none bind,ro,nosuid,noexec,x-create=dir,nofail\n"
	"/etc/nsswitch.conf /etc/nsswitch.conf none bind,ro,x-create=file,nofail\n"
	"/etc/hosts /etc/hosts none bind,ro,x-create=file,nofail\n"
	"/etc/resolv.conf /etc/resolv.conf none bind,ro,x-create=file,nofail\n";

/* The window on the tree that is attached at `path`, with no more than the fallback plan in it. */
static int open_bare(struct jail_step *step, int tree, const char *path, struct jail_error *err)
{
	/* Not even the spool may be known, when an argument is wrong. */
	const char *spool = step->spool.path[0] ? step->spool.path : NULL;
	const struct jail_window_parts parts = {
		step->arguments.window, jail_node_files, spool, NULL, .empty = true,
	};
	struct jail_plan plan;

	scoped_fd place = spool ? jail_resolve_create(tree, spool, JAIL_CREATE_DIR, err) : -1;
	if ((spool && place < 0) || jail_plan_parse(fallback_plan, sizeof(fallback_plan) - 1, "fallback plan", &plan, err))
		return -1;
	const struct jail_apply_options options = { .plan = &plan };
	int result = jail_tree_apply(tree, &options, err) ||
		     jail_window_open(path, &parts, &step->window, step->user == 0, err) ? -1 : 0;
	jail_plan_free(&plan);
	return result;
}

static int open_bare_root(struct jail_step *step, struct jail_error *err)
{
	scoped_fd trusted = jail_open_trusted(step->arguments.root, 1, "jail root", err);
	if (trusted < 0 || jail_opening_check_root(trusted, step->arguments.root, err))
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

int jail_step_open_fallback(struct jail_step *step, bool needs_volume, struct jail_error *err)
{
	if (!step->spool.path[0] && jail_spool_path(step->arguments.spool, step->node, step->spool.path, err))
		step->spool.path[0] = '\0';
	if (jail_namespace_private(err))
		return -1;
	if (!open_bare_root(step, err))
		return 1;
	if (needs_volume)
		return 0;
	return open_nothing(step, err) ? -1 : 1;
}
