/* SPDX-License-Identifier: Apache-2.0 */
/* Makes and enters PID namespaces for jobs and sessions. Their first process (init) is a small program of the node.
 * enter.c, spank_jail/enter, spank_jail/pam and spank_jail/slurm call it. */
#define _GNU_SOURCE
#include "pid_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/child.h"
#include "native/mount/filesystem.h"
#include "native/mount/namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "tree.h"
#include "native/base/trust.h"

/* Linux 6.11; numbers of the kernel's interface, which headers of older systems lack. */
#ifndef PIDFD_GET_PID_NAMESPACE
#define PIDFD_GET_PID_NAMESPACE _IO(0xFF, 5)
#define PIDFD_GET_PID_FOR_CHILDREN_NAMESPACE _IO(0xFF, 6)
#endif

int jail_pid_view_take(const struct jail_plan *plan, struct jail_pid_view *view, struct jail_error *err)
{
	*view = (struct jail_pid_view){ .plan.file = plan->file };
	view->plan.entries = calloc(plan->n_entries + 1, sizeof(*view->plan.entries));
	view->mounts = calloc(plan->n_entries + 1, sizeof(*view->mounts));
	if (!view->plan.entries || !view->mounts)
		return jail_fail(err, "calloc", ENOMEM, "not enough memory for the plan");
	for (size_t i = 0; i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		int *mount = &view->mounts[view->plan.n_entries];
		if (!jail_plan_is_of_proc(plan, entry) || (entry->only_if && access(entry->only_if, F_OK)))
			continue;
		*mount = -1;
		if (entry->type == JAIL_BIND || entry->type == JAIL_RBIND) {
			*mount = jail_filesystem_open(entry, err);
			if (*mount < 0 && entry->nofail && err->number == ENOENT)
				continue;
			if (*mount < 0)
				return jail_error_at(err, plan->file, entry->line, entry->target);
		} else if (entry->type != JAIL_PROC && jail_entry_is_shared(entry)) {
			jail_fail(err, NULL, 0, "at level pid each step has a /proc of its own, and nothing below it can be "
				  "shared by the steps of a job; add x-jail.per-step");
			return jail_error_at(err, plan->file, entry->line, entry->target);
		}
		view->plan.entries[view->plan.n_entries] = *entry;
		view->plan.entries[view->plan.n_entries++].only_if = NULL;
	}
	return 0;
}

void jail_pid_view_free(struct jail_pid_view *view)
{
	for (size_t i = 0; view->mounts && i < view->plan.n_entries; i++)
		jail_close(&view->mounts[i]);
	free(view->mounts);
	free(view->plan.entries);
	*view = (struct jail_pid_view){ 0 };
}

int jail_pid_program(const char *path, struct jail_error *err)
{
	scoped_fd trusted = jail_open_trusted(path, 0, "init of the jail's PID namespaces", err);

	if (trusted < 0)
		return -1;
	/* Read-only whatever becomes of the node's mount: a process in the namespace can name it by /proc/1/exe. */
	int program = jail_filesystem_clone(path, 0, MOUNT_ATTR_RDONLY, 1, err);
	return program < 0 ? jail_error_at(err, NULL, 0, path) : program;
}

struct start {
	const struct jail_pid_request *request;
	int parent; /* pidfd of the process that starts it */
	struct jail_error *err;
	int result;
	pid_t init;
	int namespace; /* made by a process that ends; its descriptor is ours */
};

/* The init dies with the thread that started it. When that one died before it could be asked for, the
 * descriptor of its process tells. */
static int die_with_parent(int parent, struct jail_error *err)
{
	struct pollfd ended = { .fd = parent, .events = POLLIN };

	if (sys_prctl(PR_SET_PDEATHSIG, SIGKILL))
		return jail_fail(err, "prctl", errno, "cannot tie the PID namespace to the step");
	return poll(&ended, 1, 0) ? jail_fail(err, NULL, 0, "the step has ended") : 0;
}

static int show_processes(const struct jail_pid_request *request, struct jail_error *err)
{
	const struct jail_apply_options options = {
		.plan = &request->view->plan, .level = request->level, .mounts = request->view->mounts,
	};

	if (request->namespace < 0)
		return jail_tree_apply(request->root, &options, err);
	if (jail_namespace_enter(request->namespace, err))
		return -1;
	scoped_fd root = sys_open("/", O_PATH | O_DIRECTORY);
	if (root < 0)
		return jail_fail(err, "open", errno, "cannot open the jail's root");
	return jail_tree_apply(root, &options, err);
}

/* In the new process, which shares the memory of the starting thread until it executes; the thread waits. */
static int become_init(void *argument)
{
	char name[16] = "jail-init"; /* as long as the kernel's names are */
	char *const argv[] = { name, NULL }, *const environment[] = { NULL };
	const struct sigaction ignored = { .sa_handler = SIG_IGN };
	struct start *start = argument;
	struct jail_error *err = start->err;

	if (!start->request->detached &&
	    (show_processes(start->request, err) || die_with_parent(start->parent, err)))
		_exit(1);
	/* Orphans need no reaper then: the kernel drops what ends. */
	if (sigaction(SIGCHLD, &ignored, NULL) || sys_chdir("/") ||
	    syscall(SYS_close_range, 0U, ~0U, CLOSE_RANGE_CLOEXEC)) {
		jail_fail(err, "close_range", errno, "cannot prepare the init of the PID namespace");
		_exit(1);
	}
	(void)prctl(PR_GET_NAME, name);
	start->result = 0;
	syscall(SYS_execveat, start->request->program, "", argv, environment, AT_EMPTY_PATH);
	start->result = jail_fail(err, "execveat", errno, "cannot start the init of the PID namespace");
	_exit(1);
}

static int spawn(struct start *start, struct jail_error *err)
{
	pid_t pid = jail_child_start(become_init, start, SIGCHLD, err);

	if (pid < 0)
		return -1;
	start->init = pid;
	if (!start->result)
		return 0;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return -1;
}

int jail_pid_own(struct jail_error *err)
{
	return jail_namespace_of_thread(PIDFD_GET_PID_NAMESPACE, "/proc/thread-self/ns/pid", err);
}

/* The namespace is asked of this thread, whose children it is for: the init lets nobody look at it. */
static int start_init(struct start *start, struct jail_error *err)
{
	if (sys_unshare(CLONE_NEWPID))
		return jail_fail(err, "unshare", errno, errno == EPERM ? "a PID namespace needs CAP_SYS_ADMIN"
				 : errno == ENOSPC ? "too many PID namespaces; see /proc/sys/user/max_pid_namespaces"
				 : "cannot make a PID namespace");
	if (spawn(start, err))
		return -1;
	return jail_namespace_of_thread(PIDFD_GET_PID_FOR_CHILDREN_NAMESPACE, "/proc/thread-self/ns/pid_for_children", err);
}

/* In a process of its own, which ends: the init then is a child of the node's, and of nobody who signals, stops or counts
 * the children of slurmstepd (proctrack/linuxproc). */
static int start_detached(void *argument)
{
	struct start *start = argument;

	start->namespace = start_init(start, start->err);
	return 0;
}

int jail_pid_start_detached(int program, pid_t *init, struct jail_error *err)
{
	const struct jail_pid_request request = { .program = program, .namespace = -1, .root = -1, .detached = true };
	struct start start = { .request = &request, .err = err, .result = -1, .namespace = -1 };

	if (jail_child_run(start_detached, &start, CLONE_FILES, err))
		return -1;
	*init = start.init;
	return start.namespace;
}

int jail_pid_start(const struct jail_pid_request *request, pid_t *init, struct jail_error *err)
{
	struct start start = { .request = request, .err = err, .result = -1 };
	struct jail_error back;

	scoped_fd own = jail_pid_own(err);
	if (own < 0)
		return -1;
	scoped_fd parent = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (parent < 0)
		return jail_fail(err, "pidfd_open", errno, "cannot open this process");
	start.parent = parent;
	scoped_fd namespace = start_init(&start, err);
	*init = start.init;
	if (jail_pid_enter(own, &back)) {
		*err = back;
		return -1;
	}
	return jail_keep(&namespace);
}

int jail_pid_shared(const char *path)
{
	struct jail_error ignored;
	scoped_fd found = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);

	/* And not the empty file that it is pinned on. */
	if (found < 0 || ioctl(found, NS_GET_NSTYPE) != CLONE_NEWPID)
		return -1;
	/* Who is in a namespace of its own beside it (Slurm runs su for a user's environment in one) cannot enter, and sees
	 * no daemon, either. */
	scoped_fd own = jail_pid_own(&ignored);
	if (own < 0 || jail_pid_enter(found, &ignored))
		return -1;
	return jail_pid_enter(own, &ignored) ? -1 : jail_keep(&found);
}

/* Not by its namespace, which it lets nobody look at. Field 22 of proc_pid_stat(5); the name, which may hold anything, ends
 * with the last ")". */
int jail_process_note(struct jail_process *process)
{
	char path[32], text[1024];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)process->number);
	scoped_fd file = sys_open(path, O_RDONLY);
	ssize_t got = file < 0 ? -1 : sys_pread(file, text, sizeof(text) - 1, 0);
	if (got <= 0)
		return -1;
	text[got] = '\0';
	const char *field = strrchr(text, ')');
	for (int i = 2; field && i < 22; i++)
		field = strchr(field + 1, ' ');
	return field && sscanf(field, "%llu", &process->start) == 1 ? 0 : -1;
}

int jail_process_open(const struct jail_process *process)
{
	struct jail_process now = { .number = process->number };

	/* First, so that the number cannot become another's while it is compared. */
	scoped_fd found = (int)syscall(SYS_pidfd_open, process->number, 0);
	struct pollfd ended = { .fd = found, .events = POLLIN };
	/* One that ended and was not waited for has its number and its times still. */
	return found >= 0 && !jail_process_note(&now) && now.start == process->start && !poll(&ended, 1, 0)
	       ? jail_keep(&found) : -1;
}

int jail_pid_share(const char *path, const char *init, struct jail_error *err)
{
	scoped_fd found = jail_pid_shared(path);
	if (found >= 0)
		return 0;
	scoped_fd program = jail_pid_program(init, err);
	if (program < 0)
		return -1;
	pid_t number;
	scoped_fd namespace = jail_pid_start_detached(program, &number, err);
	if (namespace < 0)
		return -1;
	scoped_fd place = open(path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	scoped_fd mount = place < 0 ? -1 : sys_open_tree(namespace, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
	if (mount < 0)
		jail_fail(err, place < 0 ? "open" : "open_tree", errno, "cannot pin the PID namespace of jobs and sessions");
	else if (sys_move_mount(mount, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		jail_fail(err, "move_mount", errno, "cannot pin the PID namespace of jobs and sessions");
	else
		return 0;
	return jail_error_at(err, NULL, 0, path);
}

struct application {
	int root;
	const struct jail_apply_options *options;
	struct jail_error *err;
	int result;
};

static int apply(void *argument)
{
	struct application *application = argument;

	application->result = jail_tree_apply(application->root, application->options, application->err);
	return 0;
}

int jail_pid_apply(int namespace, int root, const struct jail_apply_options *options, struct jail_error *err)
{
	struct application application = { root, options, err, -1 };
	struct jail_error back;

	scoped_fd own = jail_pid_own(err);
	if (own < 0 || jail_pid_enter(namespace, err))
		return -1;
	/* Root inside may end it there. Not again then: half of what it was to mount may be mounted. */
	int ended = jail_child_run(apply, &application, CLONE_FILES | CLONE_FS, err);
	if (jail_pid_enter(own, &back)) {
		*err = back;
		return -1;
	}
	return ended ? -1 : application.result;
}

int jail_pid_enter(int namespace, struct jail_error *err)
{
	if (!sys_setns(namespace, CLONE_NEWPID))
		return 0;
	return jail_fail(err, "setns", errno, errno == EPERM ? "entering a PID namespace needs CAP_SYS_ADMIN"
			 : "cannot enter the PID namespace of the step");
}

bool jail_pid_entered(void)
{
	/* A parent that is not in the namespace has no number there. */
	return getppid() == 0;
}
