/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the user and mount namespace of a container that starts, and drops the capabilities of its processes. */
#ifndef ENROOT_NAMESPACES_H
#define ENROOT_NAMESPACES_H

#include "native/settings/settings.h"

/* Makes a user namespace in which this process is `uid` and `gid`. Returns 0 or -1. */
int namespaces_make_user(unsigned uid, unsigned gid, struct jail_error *err);

/* Makes a mount namespace, and those that the settings ENROOT_UNSHARE_* say. Returns 0 or -1. */
int namespaces_make_others(const struct settings *settings, struct jail_error *err);

/* In a child, before exec: has it keep its capabilities, as hooks need them. Returns whether that worked. */
bool namespaces_keep_capabilities(void);

/* In a user namespace: sets no_new_privs, and drops all capabilities unless `uid`, this process's, is 0. Returns 0 or -1. */
int namespaces_drop_rights(unsigned uid, struct jail_error *err);

#endif
