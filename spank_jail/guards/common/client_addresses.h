/* SPDX-License-Identifier: Apache-2.0 */
/* The client's address of a connection, and records of what each address has in use: connections,
 * threads or bytes. */
#ifndef JAIL_CLIENT_ADDRESSES_H
#define JAIL_CLIENT_ADDRESSES_H

#include <stddef.h>

/* Addresses at a time; those that come when there are more share one number. */
#define JAIL_ADDRESSES_MOST 1024

struct jail_address {
	/* In network order; of IPv6 the half that a network is known by. */
	unsigned char bytes[8];
	unsigned served;
	size_t messages; /* bytes */
};

/* The address at the other end of the socket `fd`, as above; zero if there is none. */
void jail_addresses_read(int fd, unsigned char bytes[8]);

/* The entry of the address at the other end of the socket `fd`, whose `served` is 0 if it is new. The caller holds the lock of
 * `list`. */
struct jail_address *jail_addresses_find(struct jail_address list[JAIL_ADDRESSES_MOST], int fd);

#endif
