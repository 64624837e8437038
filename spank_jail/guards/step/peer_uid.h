/* SPDX-License-Identifier: Apache-2.0 */
/* The uid at the other end of a connection within this node. */
#ifndef JAIL_PEER_UID_H
#define JAIL_PEER_UID_H

#include <sys/types.h>

/* The kernel's word for who made the socket at the other end of `fd`, which is TCP or of AF_UNIX. Returns 0 or -1: it is on
 * another node, or closed, or the kernel cannot say. */
int jail_peer_uid(int fd, uid_t *uid);

#endif
