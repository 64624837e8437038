/* Mount namespaces: one of our own to build in, one that is already pivoted into the jail. */
#ifndef JAIL_NAMESPACE_H
#define JAIL_NAMESPACE_H

#include "error.h"

/* Gives the calling thread a mount namespace (and so a filesystem context) of its own. It receives
 * mounts and unmounts from the one it came from, and sends none back (slave). Returns 0 or -1. */
int jail_namespace_private(struct jail_error *err);

/* Enters the tree that is attached at `path`, for good: pivot_root, and what was the root is gone from
 * the namespace. The working directory becomes "/". Returns 0 or -1. */
int jail_namespace_pivot(const char *path, struct jail_error *err);

/* Makes a copy of the calling thread's namespace that is pivoted into the tree at `path`, and comes
 * back. `prepare`, which may be NULL, runs in the copy before the pivot, with the tree's root as working
 * directory; it returns 0 or -1. Returns a descriptor for setns(2), or -1 with the thread back where it
 * was. The thread must have a filesystem context of its own (jail_namespace_private). */
int jail_namespace_pivoted(const char *path, int (*prepare)(void *context, struct jail_error *err),
			   void *context, struct jail_error *err);

/* Joins the pivoted namespace: root and working directory are the jail's afterwards. Returns 0 or -1. */
int jail_namespace_join(int namespace, struct jail_error *err);

#endif
