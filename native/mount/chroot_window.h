/* SPDX-License-Identifier: Apache-2.0 */
/* The window: a copy of the jail's tree in which slurmstepd opens files of a job, without staying in the jail.
 *
 * A copy of the tree, reached by no path, into which the calling thread moves by chroot. In it the node's own
 * libraries lie read-only over the jail's, and nothing that comes from the jail can be mapped for execution, whatever
 * path or configuration file of the jail leads to it. No /proc is in it, for any uid: /proc/self/fd would lead to
 * whatever the daemon has open.
 */
#ifndef JAIL_WINDOW_H
#define JAIL_WINDOW_H

#include <stdbool.h>

#include "native/base/error.h"

struct jail_window {
	int tree;      /* keeps the window's mounts: a detached tree, or the namespace they are attached in */
	/* The mount namespace outside; -1: not in the window. A descriptor of a directory outside would be a name by
	 * which the job's files could be opened there. */
	int home;
	int way; /* a socket in which a descriptor of the root outside waits to be received */
	bool lowered;  /* this thread gave up a capability on entering */
};

#define JAIL_WINDOW_CLOSED { .tree = -1, .home = -1, .way = -1 }

struct jail_window_parts {
	const char *const *directories; /* of the node, laid read-only over the jail's; NULL-terminated */
	const char *const *files;       /* single files likewise; one missing on either side is left out */
	const char *writable;           /* a directory of the node that stays writable, or NULL */
	const char *sealed;             /* a directory in it that does not, or NULL; may be missing */
	bool empty; /* instead of the writable directory there is a new, empty one at its place */
};

/* Makes a window of the tree that is attached at `path`, without /proc: a copy with the parts in it, attached over the
 * tree, in the caller's (private) namespace. Returns a descriptor of its root, or -1. */
int jail_window_lay(const char *path, const struct jail_window_parts *parts, struct jail_error *err);

/* Moves the calling thread to `inside`, the root of a window, which window->tree keeps alive. `*home` is a descriptor of
 * the thread's mount namespace; the window takes it unless this fails. Threads that are started now share its root and come back with it. A thread that works for uid 0 (`for_root`) has no
 * capability to look into other processes while it is in there. On -1 the thread is where it was. */
int jail_window_enter(struct jail_window *window, int *home, int inside, bool for_root, struct jail_error *err);

/* Both, with a detached clone of the window. */
int jail_window_open(const char *path, const struct jail_window_parts *parts, struct jail_window *window,
		     bool for_root, struct jail_error *err);

/* Takes back, for the calling thread, what jail_window_enter lowered for root: a thread that was started in the window has
 * inherited it. Returns 0 or -1. */
int jail_window_regain(struct jail_error *err);

/* Back to the root before the window, for every thread that shares the filesystem context. Works under
 * a seteuid user whose real or saved uid is root. `as_root`, which may be NULL, runs while the thread is
 * root and outside. `window->tree` stays open for the caller to close when nobody waits: dissolving the
 * copy takes an RCU grace period (0.1 ms and more). Returns 0 or -1. */
int jail_window_close(struct jail_window *window, int (*as_root)(void *context, struct jail_error *err),
		      void *context, struct jail_error *err);

#endif
