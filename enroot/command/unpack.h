/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks a squashfs file into a directory, by unsquashfs. */
#ifndef ENROOT_UNPACK_H
#define ENROOT_UNPACK_H

#include "native/settings/settings.h"

/* Unpacks the squashfs that begins `offset` bytes into `image` into the empty directory `folder`, on
 * ENROOT_MAX_PROCESSORS processors. Returns 0 or -1. */
int unpack(const char *image, unsigned long long offset, const char *folder, const struct settings *settings,
	   struct jail_error *err);

#endif
