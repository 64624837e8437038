/* SPDX-License-Identifier: Apache-2.0 */
/* An image as a mount of the kernel's own squashfs, through a loop device: several times faster than squashfuse, and for
 * files alone that root made, because the kernel's parser of file systems trusts what it reads. */
#ifndef ENROOT_KERNEL_IMAGE_H
#define ENROOT_KERNEL_IMAGE_H

#include "container.h"

/* A mount that is attached nowhere yet, where ENROOT_KERNEL_IMAGES says so, one is root of the machine, and nobody but
 * root can have written the file; else -1, after a warning where it was asked for and cannot be. Before the user
 * namespace: within one nobody may do this. */
int kernel_image_mount(const struct container *container);

#endif
