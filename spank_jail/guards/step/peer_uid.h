/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the uid of the process at the other end of a connection within this node. */
#ifndef JAIL_PEER_UID_H
#define JAIL_PEER_UID_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

union socket_address {
	struct sockaddr any;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
	struct sockaddr_un local;
};

/* The kernel's word for who made the socket at the other end of `fd`, which is TCP or of AF_UNIX. Returns 0 or -1: it is on
 * another node, or closed, or the kernel cannot say. */
int jail_peer_uid(int fd, uid_t *uid);

#endif
