/* SPDX-License-Identifier: Apache-2.0 */
/* PID namespaces for jobs and sessions, whose processes see and signal each other and nobody else.
 *
 * A namespace lives as long as its first process, init: a small program of the node that sleeps while the kernel
 * reaps orphans for it. A process that forks into the namespace stays outside, and is the parent of what it forked,
 * by wait(2) and signals as ever.
 */
#ifndef JAIL_PID_NAMESPACE_H
#define JAIL_PID_NAMESPACE_H

#include <stdbool.h>

#include "native/base/error.h"
#include "native/mount/isolation_level.h"
#include "native/mount/plan.h"

#define JAIL_PID_INIT "/usr/libexec/cellblock/jail-init"

/* Where a node pins the PID namespace that its sessions share: they see each other, as the plan's hidepid= says, and
 * none of the node's daemons. */
#define JAIL_PID_SHARED "/run/cellblock/pids"

/* The lines of a plan that show processes: of type proc, and what is mounted below one. */
struct jail_pid_view {
	struct jail_plan plan; /* borrows its strings */
	int *mounts;           /* the binds among them, taken while the node is in reach */
};

/* Takes them out of `plan`, in the node's mount namespace. -1: one cannot be had in a PID namespace. */
int jail_pid_view_take(const struct jail_plan *plan, struct jail_pid_view *view, struct jail_error *err);

void jail_pid_view_free(struct jail_pid_view *view);

/* The program at `path`, if root alone can write it, as a descriptor to execute and not to write by. */
int jail_pid_program(const char *path, struct jail_error *err);

struct jail_pid_request {
	int program;   /* of jail_pid_program */
	int namespace; /* mount namespace whose root is the jail; -1: the thread's own, with the tree at `root` */
	int root;
	struct jail_pid_view *view; /* added to the jail */
	enum jail_level level;
	bool detached; /* of jail_pid_start_detached */
};

/* Makes a PID namespace and starts its init. It ends, and with it all of the namespace, when the calling
 * thread does. The thread, which sees the node's /proc, stays where it is. Other threads may be running. `init` is the number
 * of its init for the thread. Returns a descriptor of the namespace, or -1. */
int jail_pid_start(const struct jail_pid_request *request, pid_t *init, struct jail_error *err);

/* Makes one that outlives the thread, its process and that one's parent, and has no /proc anywhere yet. `init` is the number
 * of its init for the thread. Returns a descriptor of the namespace, or -1. */
int jail_pid_start_detached(int program, pid_t *init, struct jail_error *err);

/* A process that another may have to find again: its number, and when it started, in ticks since boot. */
struct jail_process {
	pid_t number;
	unsigned long long start;
};

/* Fills in `start`. Returns 0, or -1 when there is no such process. */
int jail_process_note(struct jail_process *process);

/* A pidfd of the process; -1: it has ended, and another may have its number. */
int jail_process_open(const struct jail_process *process);

/* Makes a detached namespace with `init` (a path) and pins it at the file `path`, made if missing, unless one is pinned
 * there. Returns 0 or -1. */
int jail_pid_share(const char *path, const char *init, struct jail_error *err);

/* A descriptor of the namespace that is pinned at `path`; -1: there is none, or the caller cannot enter it. */
int jail_pid_shared(const char *path);

struct jail_apply_options;

/* jail_tree_apply by a process in `namespace`: a proc that is mounted there shows its processes. Returns 0 or -1. */
int jail_pid_apply(int namespace, int root, const struct jail_apply_options *options, struct jail_error *err);

/* What the calling thread forks from now on is in the namespace, its own or one below it. It cannot start
 * threads until it is back. Returns 0 or -1. */
int jail_pid_enter(int namespace, struct jail_error *err);

/* A descriptor of the calling thread's own PID namespace, for the way back; or -1. */
int jail_pid_own(struct jail_error *err);

/* Whether the calling process, new from fork, was forked into another PID namespace than its parent's. */
bool jail_pid_entered(void);

#endif
