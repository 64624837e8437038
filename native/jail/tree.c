/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the tree of a jail: clones its root, and mounts each line of the mount plan onto the clone. enter.c,
 * pid_namespace.c, enroot/container and spank_jail/slurm call it. */
#define _GNU_SOURCE
#include "tree.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "native/cdi/apply.h"
#include "native/mount/dev_directory.h"
#include "native/mount/filesystem.h"
#include "native/mount/mask.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/mount/user_bind.h"

int jail_tree_attach(const char *path, struct jail_error *err)
{
	scoped_fd tree = sys_open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | AT_RECURSIVE);

	if (tree < 0)
		jail_fail(err, "open_tree", errno, errno == ENOSYS
			  ? "this kernel lacks the mount API; Linux 5.12 or newer is needed"
			  : errno == EPERM ? "mounting needs CAP_SYS_ADMIN" : "cannot clone the jail root");
	else if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, MOUNT_ATTR_NODEV, 0))
		jail_fail(err, "mount_setattr", errno, "cannot set nodev on the jail root; Linux 5.12 or newer is needed");
	else if (sys_move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH))
		jail_fail(err, "move_mount", errno, "cannot attach the jail's tree");
	else
		return jail_keep(&tree);
	return jail_error_at(err, NULL, 0, path);
}

int jail_tree_allow_suid(int root, struct jail_error *err)
{
	const struct mount_attr attributes = { .attr_clr = MOUNT_ATTR_NOSUID };
	struct statfs fs;

	if (sys_fstatfs(root, &fs))
		return jail_fail(err, "fstatfs", errno, "cannot look at the jail's root");
	if (!(fs.f_flags & ST_NOSUID))
		return 0;
	if (sys_mount_attributes(root, "", AT_EMPTY_PATH, &attributes))
		return jail_fail(err, "mount_setattr", errno, "cannot let set-user-ID programs of the jail work in it");
	return 0;
}

int jail_tree_refuse_suid(int root, struct jail_error *err)
{
	if (sys_mount_setattr(root, "", AT_EMPTY_PATH | AT_RECURSIVE, MOUNT_ATTR_NOSUID, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot keep set-user-ID programs of the jail from counting");
	return 0;
}

int jail_tree_readonly(int root, struct jail_error *err)
{
	if (sys_mount_setattr(root, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot make the jail's root read-only");
	return 0;
}

/* The kernel answers ENOTDIR or EINVAL to it, by version. */
static bool kinds_differ(int mount, int target)
{
	struct stat a, b;

	return !fstat(mount, &a) && !fstat(target, &b) && S_ISDIR(a.st_mode) != S_ISDIR(b.st_mode);
}

static int attach(int mount, int target, const struct jail_entry *entry, struct jail_error *err)
{
	const unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;

	if (sys_move_mount(mount, "", target, "", flags)) {
		int number = errno;
		bool differ = kinds_differ(mount, target);
		jail_fail(err, "move_mount", number, differ
			  ? "source and target must both be directories or both be files"
			  : "cannot mount %s here", jail_type_name(entry->type));
		err->inside = differ;
		return -1;
	}
	return 0;
}

int jail_tree_complete(int mount, const struct jail_entry *entry, struct jail_error *err)
{
	if (entry->type != JAIL_DEV)
		return 0;
	mode_t old = umask(0);
	int result = jail_device_fill(mount, err);
	umask(old);
	if (result)
		return -1;
	if ((entry->attributes & MOUNT_ATTR_RDONLY) &&
	    sys_mount_setattr(mount, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot make the private /dev read-only");
	return 0;
}

/* What applying one plan needs. */
struct work {
	int root;
	const struct jail_apply_options *options;
	struct jail_masks masks;
	struct jail_cdi_stage cdi;
	bool attached; /* a mount of the entry at hand shows in the tree, perhaps without its masks */
};

static int apply_cdi(struct work *work, const struct jail_entry *entry, struct jail_error *err)
{
	int result = jail_cdi_apply(&work->cdi, entry, err);

	work->attached = work->cdi.begun;
	return result;
}

static int apply_entry(struct work *work, const struct jail_entry *entry, struct jail_error *err)
{
	const struct jail_apply_options *options = work->options;
	if (entry->type == JAIL_CDI)
		return apply_cdi(work, entry, err);
	int *made = options->mounts ? &options->mounts[entry - options->plan->entries] : NULL;
	bool given = made && *made >= 0;
	scoped_fd mount = given ? jail_keep(made) : jail_filesystem_open(entry, err);

	if (mount < 0)
		return -1;
	scoped_fd target = entry->beneath ? jail_user_bind_target(work->root, entry, err)
					  : jail_resolve_create(work->root, entry->target, entry->create, err);
	if (target < 0)
		return -1;
	if (options->level >= JAIL_LEVEL_CAPABILITIES && jail_mask_applies(entry->type)) {
		work->attached = true;
		return jail_mask_attach(&work->masks, mount, target, entry, err);
	}
	if (attach(mount, target, entry, err))
		return -1;
	work->attached = true;
	if (entry->type == JAIL_TMPFS || entry->type == JAIL_DEV)
		jail_cdi_own(&work->cdi, mount);
	return given ? 0 : jail_tree_complete(mount, entry, err);
}

/* 1: x-jail.if names a path that is there, or is not given. 0: it is not there. -1: nobody knows, as on a
 * stale file handle; a line that vanishes for that would be hidden trouble, too. */
static int condition_holds(const struct jail_entry *entry, struct jail_error *err)
{
	if (!entry->only_if || !sys_access(entry->only_if))
		return 1;
	if (errno == ENOENT || errno == ENOTDIR)
		return 0;
	return jail_fail(err, "access", errno, "cannot tell whether \"%s\" of x-jail.if is there; repair it or "
			 "take the option away", entry->only_if);
}

static bool is_asked_for(const struct jail_apply_options *options, const struct jail_entry *entry)
{
	return options->part == JAIL_PART_ALL ||
	       jail_plan_is_of_proc(options->plan, entry) == (options->part == JAIL_PART_PROC);
}

static int apply_all(struct work *work, struct jail_error *err)
{
	const struct jail_apply_options *options = work->options;

	for (size_t i = 0; i < options->plan->n_entries; i++) {
		const struct jail_entry *entry = &options->plan->entries[i];
		if (!is_asked_for(options, entry))
			continue;
		work->attached = false;
		int wanted = condition_holds(entry, err);
		if (!wanted) {
			char why[300];
			snprintf(why, sizeof(why), "\"%s\" of x-jail.if is not there", entry->only_if);
			jail_report_left_out(options, entry, why);
			continue;
		}
		if (wanted > 0 && !apply_entry(work, entry, err))
			continue;
		if (entry->origin)
			return jail_error_at(err, entry->origin, 0, entry->target);
		/* What is attached is not left out: half a /dev is an error, whatever it lacks, as is a /proc
		 * without its masks. */
		if (wanted < 0 || work->attached || !jail_entry_forgives(entry, err))
			return jail_error_at(err, options->plan->file, entry->line, entry->target);
		jail_report_left_out(options, entry, err->message);
	}
	return 0;
}

int jail_tree_apply(int root, const struct jail_apply_options *options, struct jail_error *err)
{
	struct work work = { .root = root, .options = options, .masks = JAIL_MASKS_NONE };
	/* Modes in the plan and in device.c are meant exactly. The umask belongs to the filesystem
	 * context, which the private namespace made this thread's own. */
	mode_t old = umask(0);

	jail_cdi_begin(&work.cdi, root, options);
	int result = jail_cdi_end(&work.cdi, apply_all(&work, err), err);
	umask(old);
	jail_masks_close(&work.masks);
	return result;
}
