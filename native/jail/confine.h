/* SPDX-License-Identifier: Apache-2.0 */
/* What root in the jail may do: capabilities, system calls, keyrings. docs/jail-isolation.md is the reference.
 *
 * In two calls, because whoever starts a user's process still needs root's rights in between, to set limits and ids.
 * Both do nothing at level filesystem. After a failure the process must not go on.
 */
#ifndef JAIL_CONFINE_H
#define JAIL_CONFINE_H

#include <stdbool.h>

#include "native/base/error.h"
#include "native/mount/isolation_level.h"

/* For the calling thread, which is root of the node or of its user namespace and the only one of its
 * process: an empty session keyring, the bounding set cut, inheritable and ambient capabilities cleared,
 * the system call filter attached. There is no way back, but permitted and effective capabilities stay, all
 * but SYS_ADMIN and SYS_PTRACE: ids, limits and groups can still be set. Returns 0 or -1. */
int jail_confine(enum jail_level level, struct jail_error *err);

/* The last thing before exec, as any user: permitted and effective capabilities cut to what the bounding
 * set allows. Returns 0 or -1. */
int jail_confine_final(enum jail_level level, struct jail_error *err);

/* Whether root keeps the capability (a CAP_* number) in the jail from level capabilities up. */
bool jail_confine_allows(unsigned capability);

#endif
