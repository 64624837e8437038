/* The window: how a daemon opens files in the jail without living there (docs/decisions).
 *
 * A detached copy of the tree into which the calling thread moves by chroot. In it the node's own
 * libraries lie read-only over the jail's, and nothing that comes from the jail can be mapped for
 * execution, whatever path or configuration file of the jail leads to it.
 */
#ifndef JAIL_WINDOW_H
#define JAIL_WINDOW_H

#include "error.h"

struct jail_window {
	int tree; /* the detached copy; closing it dissolves the copy, files opened in it stay usable */
	int root; /* the root to come back to */
};

#define JAIL_WINDOW_CLOSED { -1, -1 }

struct jail_window_parts {
	const char *const *directories; /* of the node, laid read-only over the jail's; NULL-terminated */
	const char *const *files;       /* single files likewise; one missing on either side is left out */
	const char *writable;           /* a directory of the node that stays writable, or NULL */
};

/* Opens the window on the tree attached at `path` and moves the calling thread into it. On -1 the
 * thread is where it was. On success the window's own tree lies over the first afterwards, in the caller's
 * namespace; descriptors of the first stay good. Threads that are started now share its root and come back with it. */
int jail_window_open(const char *path, const struct jail_window_parts *parts, struct jail_window *window,
		     struct jail_error *err);

/* Back to the root before the window, for every thread that shares the filesystem context. Works under
 * a seteuid user whose real or saved uid is root. `as_root`, which may be NULL, runs while the thread is
 * root and outside. `window->tree` stays open for the caller to close when nobody waits: dissolving the
 * copy takes an RCU grace period (0.1 ms and more). Returns 0 or -1. */
int jail_window_close(struct jail_window *window, int (*as_root)(void *context, struct jail_error *err),
		      void *context, struct jail_error *err);

#endif
