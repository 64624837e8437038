/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the mount of one line of a mount plan as a descriptor; native/jail attaches it with move_mount(2). */
#ifndef JAIL_FILESYSTEM_H
#define JAIL_FILESYSTEM_H

#include "native/base/error.h"
#include "plan.h"

/* Makes the mount of `entry` (any type but CDI), with its attributes set before anyone can see it.
 * Binds take their source from the caller's own root. Returns a descriptor for move_mount(2), or -1;
 * err->number is ENOENT when a bind's source is missing, ENODEV when the kernel lacks the type. */
int jail_filesystem_open(const struct jail_entry *entry, struct jail_error *err);

/* A tmpfs: `parameters` for fsconfig(2), `attributes` MOUNT_ATTR_*. Returns a descriptor or -1. */
int jail_filesystem_new(const char *type, const struct jail_parameter *parameters, size_t n_parameters,
			uint64_t attributes, struct jail_error *err);

/* A clone of `path` (with what is mounted below it when `recursive`), `attributes` set on all of it,
 * and receiving no mount events when `private`. Returns a descriptor or -1. */
int jail_filesystem_clone(const char *path, int recursive, uint64_t attributes, int private,
			  struct jail_error *err);

#endif
