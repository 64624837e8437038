/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the client's address of a connection, and finds the record of what this address has in use. connections.c,
 * service_connections.c and large_messages.c call it. */
#define _GNU_SOURCE
#include "client_addresses.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

void jail_addresses_read(int fd, unsigned char bytes[8])
{
	struct sockaddr_storage peer = { 0 };
	socklen_t size = sizeof(peer);
	const struct sockaddr_in *in = (const void *)&peer;
	const struct sockaddr_in6 *in6 = (const void *)&peer;

	memset(bytes, 0, 8);
	if (getpeername(fd, (struct sockaddr *)&peer, &size))
		return;
	bytes[0] = 4;
	if (peer.ss_family == AF_INET)
		memcpy(bytes + 4, &in->sin_addr, 4);
	else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		memcpy(bytes + 4, in6->sin6_addr.s6_addr + 12, 4);
	else
		memcpy(bytes, in6->sin6_addr.s6_addr, 8);
	/* Whoever is on this node has all of 127.0.0.0/8. */
	if (bytes[0] == 4 && bytes[4] == 127)
		memset(bytes + 5, 0, 3);
}

struct jail_address *jail_addresses_find(struct jail_address list[JAIL_ADDRESSES_MOST], int fd)
{
	struct jail_address *unused = &list[JAIL_ADDRESSES_MOST - 1];
	unsigned char bytes[8];

	jail_addresses_read(fd, bytes);
	for (size_t i = 0; i < JAIL_ADDRESSES_MOST; i++) {
		if (list[i].served && !memcmp(list[i].bytes, bytes, 8))
			return &list[i];
		if (!list[i].served)
			unused = &list[i];
	}
	memcpy(unused->bytes, bytes, 8);
	return unused;
}
