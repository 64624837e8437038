/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the tree of a jail: clones it, and mounts each line of the mount plan onto the clone. */
#ifndef JAIL_TREE_H
#define JAIL_TREE_H

#include <stdbool.h>

#include "native/base/error.h"
#include "native/mount/plan.h"
#include "native/mount/apply_options.h"

/* Clones the directory `path` with what is mounted below it and attaches the clone over it, in the
 * caller's mount namespace (which must be its own: jail_namespace_private). Device nodes of the volume
 * are dead in it (nodev). Returns a descriptor of the attached tree's root, or -1. */
int jail_tree_attach(const char *path, struct jail_error *err);

/* Lets set-user-ID programs and file capabilities of the volume count in the namespace of the attached tree `root`,
 * also where the node mounts the volume nosuid: in there they give rights in the jail alone. Returns 0 or -1. */
int jail_tree_allow_suid(int root, struct jail_error *err);

/* Lets no set-user-ID program and no file capability count below `root`, on the volume and on what is mounted on it: who is not root
 * does not become root there. Returns 0 or -1. */
int jail_tree_refuse_suid(int root, struct jail_error *err);

/* Makes the volume read-only in the namespace of the attached tree `root`; what the plan mounted on it stays
 * as it is. After jail_tree_apply, which may have to create targets. Returns 0 or -1. */
int jail_tree_readonly(int root, struct jail_error *err);

/* What remains to be done once the new mount of `entry` is attached somewhere: a private /dev is filled.
 * Whoever gives a mount in `mounts` has done so. Returns 0 or -1. */
int jail_tree_complete(int mount, const struct jail_entry *entry, struct jail_error *err);

/* Mounts every entry of the plan, in its order, onto the attached tree `root`; from level capabilities up
 * proc and sysfs are masked (mask.h). On -1 what was mounted so far stays: the caller drops the namespace,
 * which is the only way to take all of it away. */
int jail_tree_apply(int root, const struct jail_apply_options *options, struct jail_error *err);

#endif
