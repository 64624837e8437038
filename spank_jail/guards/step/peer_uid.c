/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the uid of the process at the other end of a TCP or Unix connection within this node. pmix.c calls it. */
#define _GNU_SOURCE
#include "peer_uid.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "native/base/scoped.h"

/* sock_diag(7) */
struct question {
	struct nlmsghdr header;
	struct inet_diag_req_v2 request;
};

struct answer {
	struct nlmsghdr header;
	struct inet_diag_msg message;
};

static void set_end(const union socket_address *address, __be16 *port, __be32 bytes[4])
{
	bool six = address->any.sa_family == AF_INET6;

	*port = six ? address->six.sin6_port : address->four.sin_port;
	memcpy(bytes, six ? (const void *)&address->six.sin6_addr : (const void *)&address->four.sin_addr, six ? 16 : 4);
}

/* The socket whose own end is our peer's, and whose peer's is ours. */
static int ask(const union socket_address *own, const union socket_address *peer, uid_t *uid)
{
	struct question question = {
		.header = {
			.nlmsg_len = sizeof(question), .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST,
		},
		.request = {
			.sdiag_family = (uint8_t)own->any.sa_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0U,
			.id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE },
		},
	};
	/* Attributes follow. */
	union {
		struct answer answer;
		char space[8192];
	} got;

	set_end(peer, &question.request.id.idiag_sport, question.request.id.idiag_src);
	set_end(own, &question.request.id.idiag_dport, question.request.id.idiag_dst);
	scoped_fd diagnosis = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (diagnosis < 0 || send(diagnosis, &question, sizeof(question), 0) != (ssize_t)sizeof(question))
		return -1;
	ssize_t length = recv(diagnosis, &got, sizeof(got), 0);
	if (length < (ssize_t)sizeof(got.answer) || got.answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return -1;
	*uid = got.answer.message.idiag_uid;
	return 0;
}

int jail_peer_uid(int fd, uid_t *uid)
{
	union socket_address own, peer;
	struct ucred credentials;
	socklen_t own_size = sizeof(own), peer_size = sizeof(peer), size = sizeof(credentials);

	if (getsockname(fd, &own.any, &own_size) || getpeername(fd, &peer.any, &peer_size))
		return -1;
	if (own.any.sa_family == AF_INET || own.any.sa_family == AF_INET6)
		return ask(&own, &peer, uid);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
		return -1;
	*uid = credentials.uid;
	return 0;
}
