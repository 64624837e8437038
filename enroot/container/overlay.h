/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a tmpfs over a read-only image, so that the container can write; what it writes is gone at its end. */
#ifndef ENROOT_OVERLAY_H
#define ENROOT_OVERLAY_H

#include "container.h"

/* The directories of one: all in the container's own tmpfs. */
struct overlay {
	const char *lower, *upper, *work;
	int log; /* what fuse-overlayfs says; -1 for the kernel's. The caller closes it */
};

/* The kernel's. Returns a mount that is attached nowhere yet, or -1. */
int overlay_native(const struct container *container, const struct overlay *overlay, struct jail_error *err);

/* The same by the program fuse-overlayfs (ENROOT_NATIVE_OVERLAYFS=no): for kernels that refuse theirs to users. It ends with
 * the container's last process. */
int overlay_fuse(const struct container *container, struct overlay *overlay, struct jail_error *err);

#endif
