/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts an image with the kernel's own squashfs, through a loop device. That is several times faster than
 * squashfuse, but only for images that root made: the kernel's parser trusts what it reads. */
#ifndef ENROOT_KERNEL_IMAGE_H
#define ENROOT_KERNEL_IMAGE_H

#include "container.h"

/* A mount that is attached nowhere yet, where ENROOT_KERNEL_IMAGES says so, one is root of the machine, and nobody but
 * root can have written the file; else -1, after a warning where it was asked for and cannot be. Before the user
 * namespace: within one nobody may do this. */
int kernel_image_mount(const struct container *container);

#endif
