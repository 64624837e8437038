/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts a FUSE file system for a container. /dev/fuse is opened and mounted here; a program of the
 * user serves it. */
#ifndef ENROOT_FUSE_H
#define ENROOT_FUSE_H

#include <sys/types.h>

#include "native/base/error.h"

/* What to do where an image cannot be mounted, for messages; `offset` is a bundle's, or 0. The caller frees it. */
char *fuse_instead(const char *image, unsigned long long offset);
/* /dev/fuse, open; -1: it is not there or not for this user, and `image` could be unpacked instead. */
int fuse_open(const char *image, unsigned long long offset, struct jail_error *err);

/* The mount of `device`, attached nowhere yet. `attributes`: MOUNT_ATTR_*. Returns a descriptor or -1. */
int fuse_mount(int device, const char *source, uid_t uid, gid_t gid, unsigned attributes, struct jail_error *err);

/* In a child: apart from the terminal and from whoever waits for our standard streams to close; `log` takes what it
 * says. */
void fuse_detach(int log);

/* In a child: becomes `program`, whose last argument is /dev/fd/DEVICE. `arguments` has room for it before its NULL. Ends
 * with 127 on failure. */
__attribute__((noreturn)) void fuse_serve(const char *program, char **arguments, int device);

/* The first line of what the server said into `log`. */
void fuse_said(int log, char *text, size_t size);

#endif
