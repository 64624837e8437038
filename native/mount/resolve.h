/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and creates paths inside the jail, whose users may swap files and links at any moment.
 *
 * Every path is resolved by openat2(2) with RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS: symlinks and ".." stay inside
 * the tree, /proc/PID/fd and the like are refused. What is returned is a descriptor, and everything later is done to
 * that descriptor: nobody can swap the path in between.
 */
#ifndef JAIL_RESOLVE_H
#define JAIL_RESOLVE_H

#include <stdint.h>

#include "native/base/error.h"
#include "plan.h"

/* Opens `path` inside the tree at descriptor `root` with O_PATH and `flags` (such as O_DIRECTORY).
 * Returns a descriptor, or -1. */
int jail_resolve(int root, const char *path, uint64_t flags, struct jail_error *err);

/* The same, making what is missing: directories (mode 0755), and for JAIL_CREATE_FILE an empty last
 * component (mode 0644). What exists is left alone. JAIL_CREATE_NONE equals jail_resolve. */
int jail_resolve_create(int root, const char *path, enum jail_create create, struct jail_error *err);

#endif
