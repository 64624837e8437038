/* SPDX-License-Identifier: Apache-2.0 */
/* Mount and IPC namespaces: a thread makes its own, turns it into a jail, or visits another one and comes back. */
#ifndef JAIL_NAMESPACE_H
#define JAIL_NAMESPACE_H

#include "native/base/error.h"

/* Gives the calling thread a mount namespace (and so a filesystem context) of its own. It receives
 * mounts and unmounts from the one it came from, and sends none back (slave). Returns 0 or -1. */
int jail_namespace_private(struct jail_error *err);

/* Enters the tree that is attached at `path`, for good: pivot_root, and what was the root is gone from
 * the namespace. The working directory becomes "/". Returns 0 or -1. */
int jail_namespace_pivot(const char *path, struct jail_error *err);

/* A descriptor of the calling thread's mount namespace, or -1. */
int jail_namespace_open(struct jail_error *err);

/* A descriptor of the calling thread's namespace that the pidfd request `which` (PIDFD_GET_*_NAMESPACE) means, on
 * older kernels by `path`; or -1. */
int jail_namespace_of_thread(unsigned long which, const char *path, struct jail_error *err);

/* A descriptor of the calling thread's IPC namespace, of a new one in which the thread is not, or -1. */
int jail_namespace_ipc(struct jail_error *err);
int jail_namespace_new_ipc(struct jail_error *err);

/* Puts the calling thread into an IPC namespace. Returns 0 or -1. */
int jail_namespace_enter_ipc(int namespace, struct jail_error *err);

/* Puts the calling thread into a copy of its mount namespace, which ends with the last descriptor or
 * process in it; `copy` is a descriptor of it. Returns 0 or -1. */
int jail_namespace_branch(int *copy, struct jail_error *err);

/* Where a thread comes back to after a visit to other mount namespaces. */
struct jail_home {
	int namespace, root, cwd;
};

#define JAIL_HOME_NONE { -1, -1, -1 }

/* Gives the calling thread a filesystem context of its own and notes where it is, so that it may go to
 * other namespaces and come back. Returns 0, or -1 with nothing open. */
int jail_namespace_leave(struct jail_home *home, struct jail_error *err);

/* Back to where jail_namespace_leave was called; closes `home`. On -1 the thread is anywhere: end the
 * process. */
int jail_namespace_return(struct jail_home *home, struct jail_error *err);

void jail_home_close(struct jail_home *home);

/* How many mounts the calling thread's mount namespace has, of which `namespace` is a descriptor; -1 where the kernel
 * cannot say (before 6.8). */
int jail_namespace_count(int namespace);

/* Puts the calling thread, which has a filesystem context of its own, at the root of `namespace`. */
int jail_namespace_enter(int namespace, struct jail_error *err);

/* As jail_namespace_enter, for a thread that may share its context: root and working directory are the jail's
 * afterwards. Returns 0 or -1. */
int jail_namespace_join(int namespace, struct jail_error *err);

#endif
