/* SPDX-License-Identifier: Apache-2.0 */
/* The hidden names that container roots have while they are being made or removed. */
#ifndef ENROOT_STAGING_NAME_H
#define ENROOT_STAGING_NAME_H

#include <stdbool.h>

/* Behind it "PID-NUMBER". */
#define STAGING_PREFIX ".enroot-"

/* Whether `name` is one of them: a bundle extracts in folders of users, who may have a .enroot-backup of their own there. */
bool staging_is_name(const char *name);

#endif
