#define _GNU_SOURCE
#include "tree.h"

#include <stdio.h>
#include <sys/stat.h>

#include "device.h"
#include "filesystem.h"
#include "resolve.h"
#include "scoped.h"
#include "sys.h"

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

static void notice(const struct jail_setup *setup, const struct jail_entry *entry, const char *why)
{
	char text[600];

	if (!setup->notice)
		return;
	snprintf(text, sizeof(text), "%s:%d: %s: left out: %s", setup->plan->file, entry->line, entry->target, why);
	setup->notice(setup->context, text);
}

/* What nofail forgives: something is not there. Anything else (no permission, a full volume, a stale
 * handle) would be hidden trouble. */
static bool forgiven(const struct jail_entry *entry, const struct jail_error *err)
{
	return entry->nofail && (err->number == ENOENT || err->number == ENOTDIR || err->number == ENODEV);
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

static int apply_entry(int root, const struct jail_setup *setup, const struct jail_entry *entry,
		       struct jail_error *err)
{
	int *made = setup->mounts ? &setup->mounts[entry - setup->plan->entries] : NULL;
	bool given = made && *made >= 0;
	scoped_fd mount = given ? jail_keep(made) : jail_filesystem_open(entry, err);

	if (mount < 0)
		return -1;
	scoped_fd target = jail_resolve_create(root, entry->target, entry->create, err);
	if (target < 0)
		return -1;
	if (attach(mount, target, entry, err))
		return -1;
	return given ? 0 : jail_tree_complete(mount, entry, err);
}

static int apply_all(int root, const struct jail_setup *setup, struct jail_error *err)
{
	for (size_t i = 0; i < setup->plan->n_entries; i++) {
		const struct jail_entry *entry = &setup->plan->entries[i];
		if (entry->only_if && access(entry->only_if, F_OK)) {
			notice(setup, entry, "x-jail.if names a path that is not there");
			continue;
		}
		if (!apply_entry(root, setup, entry, err))
			continue;
		if (!forgiven(entry, err))
			return jail_error_at(err, setup->plan->file, entry->line, entry->target);
		notice(setup, entry, err->message);
	}
	return 0;
}

int jail_tree_apply(int root, const struct jail_setup *setup, struct jail_error *err)
{
	/* Modes in the plan and in device.c are meant exactly. The umask belongs to the filesystem
	 * context, which the private namespace made this thread's own. */
	mode_t old = umask(0);
	int result = apply_all(root, setup, err);

	umask(old);
	return result;
}
