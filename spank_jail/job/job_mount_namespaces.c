/* SPDX-License-Identifier: Apache-2.0 */
/* Makes, keeps and opens the three mount namespaces of a job on a node, which all its steps use. open_step.c and
 * enter_step.c call it. */
#define _GNU_SOURCE
#include "job_mount_namespaces.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "native/mount/namespace.h"
#include "native/jail/pid_namespace.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/jail/tree.h"
#include "job_directory.h"
#include "job_namespaces.h"

#define RECORD "record"

/* Their names in the job's directory, in the order of pins(). */
static const char *const names[] = { "home", "tasks", "window" };

#define N_NAMESPACES 3

/* Linux 6.12; a number of the kernel's interface, which headers of older systems lack. */
#ifndef NS_GET_MNTNS_ID
#define NS_GET_MNTNS_ID _IOR(0xb7, 0x5, uint64_t)
#endif

/* The largest machine that Linux can be built for. */
#define N_CPUS 8192

struct cpus {
	cpu_set_t set[N_CPUS / CPU_SETSIZE];
};

static void pins(const struct jail_namespaces *namespaces, int fds[N_NAMESPACES])
{
	fds[0] = namespaces->home;
	fds[1] = namespaces->tasks;
	fds[2] = namespaces->window;
}

/* A mount namespace can be pinned only in an older one, lest they hold each other, and Linux 6.18 tells the
 * age by numbers that each CPU takes from a batch of its own: on the wrong CPU the number is too low. */
static bool is_younger(int namespace, int holder)
{
	uint64_t own = 1, older = 0;

	/* Kernels that cannot say number them in order. */
	return ioctl(namespace, NS_GET_MNTNS_ID, &own) || ioctl(holder, NS_GET_MNTNS_ID, &older) || own > older;
}

static int make_private(struct jail_error *err)
{
	return jail_namespace_private(err) ? -1 : jail_namespace_open(err);
}

static void stay_on(int cpu)
{
	struct cpus one = { 0 };

	CPU_SET_S((size_t)cpu, sizeof(one), one.set);
	/* Where it is refused, the namespaces may come out such that they cannot be kept; that is all. */
	(void)sched_setaffinity(0, sizeof(one), one.set);
}

/* Makes the caller's namespace private and one that can be pinned, if any CPU of `allowed` makes one.
 * Returns a descriptor, or -1. The thread stays on that CPU. */
static int make_younger(int holder, const struct cpus *allowed, struct jail_error *err)
{
	stay_on(sched_getcpu());
	scoped_fd made = make_private(err);

	for (int cpu = 0; made >= 0 && cpu < N_CPUS && !is_younger(made, holder); cpu++) {
		if (!CPU_ISSET_S((size_t)cpu, sizeof(*allowed), allowed->set))
			continue;
		stay_on(cpu);
		if (jail_namespace_enter(holder, err))
			return -1;
		jail_close(&made);
		made = make_private(err);
	}
	return jail_keep(&made);
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

/* The jail's tree, in a namespace that becomes slurmstepd's. */
static int make_home(const struct jail_namespaces_request *request, const struct cpus *allowed,
		     struct jail_namespaces *namespaces, struct jail_error *err)
{
	const struct jail_apply_options options = {
		.plan = request->plan, .level = request->level, .mounts = request->mounts, .notice = request->notice,
		.part = JAIL_PART_OTHERS,
	};

	namespaces->home = make_younger(request->holder, allowed, err);
	if (namespaces->home < 0 || jail_holder_hide(err))
		return -1;
	scoped_fd root = jail_tree_attach(request->root, err);
	if (root < 0 || jail_tree_apply(root, &options, err) ||
	    jail_spool_attach(request->spool, request->spool_view, root, err))
		return -1;
	return share_tmp(root, err);
}

/* Left out of the window. At level pid a step adds its own to the tasks' namespace. */
static int show_processes(const struct jail_namespaces_request *request, struct jail_error *err)
{
	const struct jail_apply_options options = {
		.plan = request->plan, .level = request->level, .notice = request->notice, .part = JAIL_PART_PROC,
	};
	scoped_fd root = sys_open(request->root, O_PATH | O_DIRECTORY);

	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's tree");
	return request->pids < 0 ? jail_tree_apply(root, &options, err) : jail_pid_apply(request->pids, root, &options, err);
}

static int make_tasks(const struct jail_namespaces_request *request, struct jail_namespaces *namespaces,
		      struct jail_error *err)
{
	if (jail_namespace_branch(&namespaces->tasks, err) ||
	    (request->level < JAIL_LEVEL_PID && show_processes(request, err)) ||
	    jail_namespace_pivot(request->root, err))
		return -1;
	namespaces->mounts = jail_namespace_count(namespaces->tasks);
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);
	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's root");
	return (request->nosuid ? jail_tree_refuse_suid(root, err) : jail_tree_allow_suid(root, err)) ||
	       (request->readonly && jail_tree_readonly(root, err)) ? -1 : 0;
}

static int make_window(const struct jail_namespaces_request *request, struct jail_namespaces *namespaces,
		       struct jail_error *err)
{
	if (jail_namespace_enter(namespaces->home, err) || jail_namespace_branch(&namespaces->window, err))
		return -1;
	scoped_fd laid = jail_window_lay(request->root, request->parts, err);
	return laid < 0 ? -1 : jail_namespace_pivot(request->root, err);
}

int jail_namespaces_make(const struct jail_namespaces_request *request, struct jail_namespaces *namespaces,
			 struct jail_error *err)
{
	struct cpus allowed = { 0 };
	bool known = !sched_getaffinity(0, sizeof(allowed), allowed.set);
	int result = make_home(request, &allowed, namespaces, err) || make_tasks(request, namespaces, err) ||
		     make_window(request, namespaces, err) ? -1 : 0;

	if (known)
		(void)sched_setaffinity(0, sizeof(allowed), allowed.set);
	if (result)
		jail_namespaces_close(namespaces);
	return result;
}

/* And not the empty file that a pin lies on, when somebody has unmounted it. */
static bool is_namespace(int fd)
{
	return fd >= 0 && ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNS;
}

bool jail_namespaces_find(int directory, struct jail_record *record, struct jail_namespaces *namespaces)
{
	if (!jail_record_holds(record, directory, RECORD))
		return false;
	namespaces->home = openat(directory, names[0], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	namespaces->tasks = openat(directory, names[1], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	namespaces->window = openat(directory, names[2], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	namespaces->mounts = record->mounts;
	if (is_namespace(namespaces->home) && is_namespace(namespaces->tasks) && is_namespace(namespaces->window))
		return true;
	jail_namespaces_close(namespaces);
	return false;
}

int jail_namespaces_keep(int directory, const struct jail_record *record, const struct jail_namespaces *namespaces,
			 struct jail_error *err)
{
	int fds[N_NAMESPACES];

	jail_namespaces_drop(directory);
	pins(namespaces, fds);
	for (size_t i = 0; i < N_NAMESPACES; i++)
		if (jail_job_pin(directory, names[i], fds[i], err))
			return -1;
	return jail_record_store(record, directory, RECORD, err);
}

void jail_namespaces_drop(int directory)
{
	/* The record first: without it nothing of the rest counts. */
	(void)unlinkat(directory, RECORD, 0);
	for (size_t i = 0; i < N_NAMESPACES; i++)
		(void)jail_job_detach(directory, names[i]);
}

void jail_namespaces_close(struct jail_namespaces *namespaces)
{
	jail_close(&namespaces->home);
	jail_close(&namespaces->tasks);
	jail_close(&namespaces->window);
}
