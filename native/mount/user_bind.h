/* SPDX-License-Identifier: Apache-2.0 */
/* A bind mount that a user asks for; those of the mount plan come from root.
 *
 * The user may write at both ends. The source is looked up below a directory that the administrator allows, with the
 * user's own rights: no link leads out of it. The target is a path of the jail without a symlink, which belongs to
 * him or lies in a place for mounts: over /etc/passwd, a set-user-id program would make him root inside.
 */
#ifndef JAIL_USER_BIND_H
#define JAIL_USER_BIND_H

#include "native/base/error.h"
#include "plan.h"

/* The unattached mount for `entry`, whose `beneath` and `user` are set. Returns a descriptor or -1. */
int jail_user_bind_source(const struct jail_entry *entry, struct jail_error *err);

/* Opens the target of such an entry in the tree `root`. Returns a descriptor or -1. */
int jail_user_bind_target(int root, const struct jail_entry *entry, struct jail_error *err);

/* Whether `path` is `top` or lies below it. Both absolute, without "." and ".."; `top` may end with a slash. */
int jail_path_within(const char *path, const char *top);

/* Whether `path` is absolute, without "." and "..", a slash too many, and not "/". */
int jail_path_plain(const char *path);

#endif
