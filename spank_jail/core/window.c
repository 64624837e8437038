#define _GNU_SOURCE
#include "window.h"

#include <stdbool.h>

#include "filesystem.h"
#include "resolve.h"
#include "scoped.h"
#include "sys.h"

#define NODE_ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Lays the node's `path` over the jail's. A missing one is left out where `optional`: then the jail's
 * own shows, which noexec makes harmless. */
static int lay_over(int tree, const char *path, uint64_t attributes, bool optional, struct jail_error *err)
{
	scoped_fd mount = jail_filesystem_clone(path, !optional, attributes, 1, err);
	if (mount < 0)
		return optional && err->number == ENOENT ? 0 : -1;
	scoped_fd target = jail_resolve(tree, path, 0, err);
	if (target < 0)
		return optional && err->number == ENOENT ? 0 : -1;
	if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)) {
		jail_fail(err, "move_mount", errno, "cannot show the node's own in the window; is the jail's "
			  "of the same kind (directory or file)?");
		return jail_error_at(err, NULL, 0, path);
	}
	return 0;
}

static int lay_all(int tree, const struct jail_window_parts *parts, struct jail_error *err)
{
	for (const char *const *path = parts->directories; *path; path++)
		if (lay_over(tree, *path, NODE_ATTRIBUTES, false, err))
			return -1;
	for (const char *const *path = parts->files; *path; path++)
		if (lay_over(tree, *path, NODE_ATTRIBUTES | MOUNT_ATTR_NOEXEC, true, err))
			return -1;
	if (parts->writable)
		return lay_over(tree, parts->writable,
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, false, err);
	return 0;
}

/* Mounts go onto attached trees only (before Linux 6.15), so the copy is attached over the first, then
 * cloned once more. It stays there, in slurmstepd's own namespace where nobody looks at it: taking it off
 * would wait for an RCU grace period, 0.2 ms and more on a busy node. Returns the detached clone, or -1. */
static int make_tree(const char *path, const struct jail_window_parts *parts, struct jail_error *err)
{
	scoped_fd copy = jail_filesystem_clone(path, 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 1, err);

	if (copy < 0)
		return -1;
	if (sys_move_mount(copy, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot attach the window's tree");
	int clone = -1;
	if (!lay_all(copy, parts, err)) {
		clone = sys_open_tree(copy, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH);
		if (clone < 0)
			jail_fail(err, "open_tree", errno, "cannot clone the window's tree");
	}
	if (clone < 0)
		(void)sys_umount2(path, JAIL_MNT_DETACH);
	return clone;
}

int jail_window_open(const char *path, const struct jail_window_parts *parts, struct jail_window *window,
		     struct jail_error *err)
{
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);
	scoped_fd cwd = sys_open(".", O_PATH | O_DIRECTORY);

	if (root < 0 || cwd < 0)
		return jail_fail(err, "open", errno, "cannot open / and the working directory");
	scoped_fd tree = make_tree(path, parts, err);
	if (tree < 0)
		return jail_error_at(err, NULL, 0, path);
	if (sys_fchdir(tree) || sys_chroot(".")) {
		jail_fail(err, "chroot", errno, "cannot enter the window; CAP_SYS_CHROOT is needed");
		(void)sys_fchdir(cwd);
		(void)sys_umount2(path, JAIL_MNT_DETACH);
		return -1;
	}
	window->tree = jail_keep(&tree);
	window->root = jail_keep(&root);
	return 0;
}

int jail_window_close(struct jail_window *window, int (*as_root)(void *, struct jail_error *), void *context,
		      struct jail_error *err)
{
	uid_t user = geteuid();
	int result = 0;

	if (window->root < 0)
		return 0;
	if (user && sys_thread_seteuid(0))
		return jail_fail(err, "setresuid", errno, "cannot become root again to leave the window");
	if (sys_fchdir(window->root) || sys_chroot("."))
		result = jail_fail(err, "chroot", errno, "cannot leave the window");
	else if (as_root)
		result = as_root(context, err);
	if (user && sys_thread_seteuid(user))
		result = jail_fail(err, "setresuid", errno, "cannot become uid %u again", (unsigned)user);
	jail_close(&window->root);
	return result;
}
