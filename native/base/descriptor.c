/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives a file descriptor over a Unix socket. enroot/importing, native/mount, pyxis/step and
 * spank_jail/enter call it. */
#define _GNU_SOURCE
#include "descriptor.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* Room for one descriptor, aligned as its header is. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

bool jail_descriptor_send(int socket, int fd, const void *bytes, size_t length)
{
	union control control = { .bytes = { 0 } };
	struct iovec part = { (void *)(uintptr_t)bytes, length };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
				  .msg_controllen = sizeof(control.bytes) };

	control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fd)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)length;
}

ssize_t jail_descriptor_receive(int socket, int *fd, void *bytes, size_t size)
{
	union control control = { .bytes = { 0 } };
	struct iovec part = { bytes, size };
	/* Without what CMSG_SPACE adds: a second descriptor would fit into it, and stay open unseen. */
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
				  .msg_controllen = CMSG_LEN(sizeof(*fd)) };
	ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;

	*fd = -1;
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
	    header->cmsg_len == CMSG_LEN(sizeof(*fd)))
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	return got;
}
