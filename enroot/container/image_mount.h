/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts a squashfs image with the program squashfuse: no privileges, no loop device, nothing unpacked. */
#ifndef ENROOT_IMAGE_MOUNT_H
#define ENROOT_IMAGE_MOUNT_H

#include <sys/types.h>

#include "native/base/error.h"

struct image_server {
	int gate;   /* closed: the server ends; a byte: it serves */
	int device; /* /dev/fuse */
	int log;    /* what it says */
};

#define IMAGE_SERVER_NONE { -1, -1, -1 }

/* Forks what will serve `image` from `offset` on with files of `uid` and `gid`. In the container's user namespace, and
 * before its mount namespace: a server within it would keep its own mount alive for ever. */
int image_server_prepare(struct image_server *server, const char *image, unsigned long long offset, uid_t uid,
			 gid_t gid, struct jail_error *err);

/* Lets it serve and returns the mount, attached nowhere yet. */
int image_server_mount(struct image_server *server, const char *image, uid_t uid, gid_t gid, struct jail_error *err);

/* Once something was read from the mount: why that failed, in the server's words. Adds to `err`. */
void image_server_explain(const struct image_server *server, const char *image, struct jail_error *err);

void image_server_close(struct image_server *server);

#endif
