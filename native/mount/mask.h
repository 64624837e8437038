/* SPDX-License-Identifier: Apache-2.0 */
/* What is covered or read-only in /proc and /sys of a jail, from level capabilities up.
 *
 * Root inside has no capabilities to speak of, but it owns the kernel's files: in /proc/sys, /proc/irq or /sys the
 * kernel asks for uid 0 and nothing else. docs/jail-isolation.md lists what is done, and why.
 */
#ifndef JAIL_MASK_H
#define JAIL_MASK_H

#include <stdbool.h>

#include "native/base/error.h"
#include "plan.h"

/* Made when the first mount of a tree needs them, shared by the others: an empty, read-only tmpfs. */
struct jail_masks {
	int base;      /* its root, -1 until it is made */
	int directory; /* an empty directory in it, */
	int file;      /* and an empty file */
	bool proc_hidden;
};

#define JAIL_MASKS_NONE { -1, -1, -1, false }

/* Whether mounts of this type are masked: proc and sysfs. */
bool jail_mask_applies(enum jail_type type);

/* Attaches `mount`, new and of a type that is masked, to `target` in an attached tree, and masks it before
 * anyone can reach it. Done while a plan is applied, not afterwards: a later entry may lie over it, and the
 * kernel lets a user namespace mount a proc as permissive as any in its mount namespace, seen or not.
 *
 * Below the first one a full but read-only proc is hidden, at a place that the mount itself covers: thanks to
 * it a container runtime in a user namespace can mount a proc of its own, read-only.
 * Returns 0 or -1; `masks` is the caller's to close either way. */
int jail_mask_attach(struct jail_masks *masks, int mount, int target, const struct jail_entry *entry,
		     struct jail_error *err);

void jail_masks_close(struct jail_masks *masks);

#endif
