/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a thread of slurmstepd by chroot into the window, a copy of the jail's tree, so that it opens a job's files
 * there, and moves it back. spank_jail/slurm and spank_jail/job call it. */
#define _GNU_SOURCE
#include "chroot_window.h"

#include <linux/capability.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "native/base/descriptor.h"
#include "filesystem.h"
#include "namespace.h"
#include "resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

#define OPEN_ATTRIBUTES (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define NODE_ATTRIBUTES (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Lays the node's `path` over the jail's. A missing one is left out where `optional`: then the jail's
 * own shows, which noexec makes harmless. */
static int lay_node_path(int tree, const char *path, uint64_t attributes, bool optional, struct jail_error *err)
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
		err->inside = true;
		return jail_error_at(err, NULL, 0, path);
	}
	return 0;
}

/* A missing one is left out where `optional`. */
static int lay_empty(int tree, const char *path, uint64_t attributes, bool optional, struct jail_error *err)
{
	static const struct jail_parameter parameters[] = { { "size", "1m" }, { "mode", "0755" } };
	scoped_fd target = jail_resolve(tree, path, O_DIRECTORY, err);
	if (target < 0 && optional && err->number == ENOENT)
		return 0;
	scoped_fd mount = target < 0 ? -1 : jail_filesystem_new("tmpfs", parameters, 2, attributes, err);

	if (mount < 0)
		return -1;
	if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)) {
		jail_fail(err, "move_mount", errno, "cannot show an empty directory in the window");
		return jail_error_at(err, NULL, 0, path);
	}
	return 0;
}

static int lay_all(int tree, const struct jail_window_parts *parts, struct jail_error *err)
{
	for (const char *const *path = parts->directories; *path; path++)
		if (lay_node_path(tree, *path, NODE_ATTRIBUTES, false, err))
			return -1;
	for (const char *const *path = parts->files; *path; path++)
		if (lay_node_path(tree, *path, NODE_ATTRIBUTES | MOUNT_ATTR_NOEXEC, true, err))
			return -1;
	/* Over the volume's directory: a job of root's could make files in it, by its output, that slurmstepd and its
	 * libraries would take for the kernel's. */
	if (lay_empty(tree, "/proc", OPEN_ATTRIBUTES | MOUNT_ATTR_RDONLY, true, err))
		return -1;
	if (parts->writable && (parts->empty ? lay_empty(tree, parts->writable, OPEN_ATTRIBUTES, false, err)
					     : lay_node_path(tree, parts->writable, OPEN_ATTRIBUTES, false, err)))
		return -1;
	if (parts->sealed && lay_node_path(tree, parts->sealed, OPEN_ATTRIBUTES | MOUNT_ATTR_RDONLY, true, err))
		return -1;
	return 0;
}

int jail_window_lay(const char *path, const struct jail_window_parts *parts, struct jail_error *err)
{
	scoped_fd copy = jail_filesystem_clone(path, 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 1, err);

	if (copy < 0)
		return -1;
	if (sys_move_mount(copy, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH)) {
		jail_fail(err, "move_mount", errno, "cannot attach the window's tree");
		return jail_error_at(err, NULL, 0, path);
	}
	return lay_all(copy, parts, err) ? -1 : jail_keep(&copy);
}

/* The kernel lets a thread through /proc/PID/root and /proc/PID/fd of a process that has no capability
 * which is not effective in the thread, or by CAP_SYS_PTRACE. slurmd has CAP_SYS_CHROOT, or there would be no
 * window: without the two, its are closed. */
static const uint32_t doors = 1U << CAP_SYS_PTRACE | 1U << CAP_SYS_CHROOT;

static int set_doors(bool open)
{
	uint32_t effective[2], permitted[2], inheritable[2];

	if (sys_capget(effective, permitted, inheritable))
		return -1;
	effective[0] = open ? effective[0] | (permitted[0] & doors) : effective[0] & ~doors;
	return sys_capset(effective, permitted, inheritable);
}

int jail_window_regain(struct jail_error *err)
{
	if (set_doors(true))
		return jail_fail(err, "capset", errno, "cannot take back the capabilities of slurmstepd");
	return 0;
}

/* A socket that has a descriptor of the caller's root under way in it. It has no number until it is received, and so
 * no name. */
static int send_root(struct jail_error *err)
{
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);
	int ends[2];

	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the root");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return jail_fail(err, "socketpair", errno, "cannot keep the way back from the window");
	scoped_fd sender = ends[1], receiver = ends[0];
	if (!jail_descriptor_send(sender, root, "", 1))
		return jail_fail(err, "sendmsg", errno, "cannot keep the way back from the window");
	return jail_keep(&receiver);
}

/* For all threads that share the filesystem context: setns(2) would refuse it. */
static int return_to_root(int way, struct jail_error *err)
{
	char byte = 0;
	int received;
	ssize_t got = jail_descriptor_receive(way, &received, &byte, sizeof(byte));
	scoped_fd root = received;

	if (got < 0 || root < 0)
		return jail_fail(err, "recvmsg", got < 0 ? errno : 0, "the way back from the window is lost");
	return sys_fchdir(root) || sys_chroot(".") ? jail_fail(err, "chroot", errno, "cannot leave the window") : 0;
}

int jail_window_enter(struct jail_window *window, int *home, int inside, bool for_root, struct jail_error *err)
{
	scoped_fd way = send_root(err);
	scoped_fd cwd = way < 0 ? -1 : sys_open(".", O_PATH | O_DIRECTORY);

	if (way < 0)
		return -1;
	if (cwd < 0)
		return jail_fail(err, "open", errno, "cannot open the working directory");
	if (sys_fchdir(inside) || sys_chroot(".")) {
		jail_fail(err, "chroot", errno, "cannot enter the window; CAP_SYS_CHROOT is needed");
		(void)sys_fchdir(cwd);
		return -1;
	}
	window->home = jail_keep(home);
	window->way = jail_keep(&way);
	if (for_root && set_doors(false)) {
		jail_fail(err, "capset", errno, "cannot lower the capabilities for the window");
		(void)jail_window_close(window, NULL, NULL, &(struct jail_error){ 0 });
		return -1;
	}
	window->lowered = for_root;
	return 0;
}

int jail_window_open(const char *path, const struct jail_window_parts *parts, struct jail_window *window,
		     bool for_root, struct jail_error *err)
{
	scoped_fd laid = jail_window_lay(path, parts, err);

	if (laid < 0)
		return -1;
	scoped_fd tree = sys_open_tree(laid, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH);
	if (tree < 0) {
		jail_fail(err, "open_tree", errno, "cannot clone the window's tree");
		return jail_error_at(err, NULL, 0, path);
	}
	scoped_fd home = jail_namespace_open(err);
	if (home < 0 || jail_window_enter(window, &home, tree, for_root, err))
		return -1;
	window->tree = jail_keep(&tree);
	return 0;
}

int jail_window_close(struct jail_window *window, int (*as_root)(void *, struct jail_error *), void *context,
		      struct jail_error *err)
{
	uid_t user = geteuid();
	int result = 0;

	if (window->home < 0)
		return 0;
	if (user && sys_thread_seteuid(0))
		return jail_fail(err, "setresuid", errno, "cannot become root again to leave the window");
	if (window->lowered && !user && jail_window_regain(err))
		return -1;
	if (return_to_root(window->way, err))
		result = -1;
	else if (as_root)
		result = as_root(context, err);
	if (user && sys_thread_seteuid(user))
		result = jail_fail(err, "setresuid", errno, "cannot become uid %u again", (unsigned)user);
	jail_close(&window->home);
	jail_close(&window->way);
	return result;
}
