/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a job's own /dev (lines of type "dev" in a mount plan) with the devices that every job has. */
#ifndef JAIL_DEV_DIRECTORY_H
#define JAIL_DEV_DIRECTORY_H

#include "native/base/error.h"

/* Fills the attached, writable tmpfs `dev` with null, zero, full, random, urandom and tty, the usual
 * symlinks (fd, stdin, stdout, stderr, ptmx -> pts/ptmx) and the empty directories pts, shm and mqueue
 * for later lines of the plan. Modes are exact when the caller's umask is 0. Returns 0 or -1. */
int jail_device_fill(int dev, struct jail_error *err);

#endif
