/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts what lines of enroot's fstab say into a container's root. */
#ifndef ENROOT_FSTAB_APPLY_H
#define ENROOT_FSTAB_APPLY_H

#include "native/container/fstab.h"

/* Does what the entry says in the tree that is attached at the path `top` and open as `root`. Nothing happens where
 * the entry is nofail and something is missing or refused. Returns 0 or -1. */
int fstab_apply(const struct fstab_entry *entry, int root, const char *top, struct jail_error *err);

/* Reads and does each line of `text` whose pass is `first` (below 0), or is not (0 and above). `name` stands for the file
 * in errors. Returns 0 or -1. */
int fstab_apply_text(const char *text, const char *name, bool first, int root, const char *top,
		     const struct expand_request *variables, struct jail_error *err);

#endif
