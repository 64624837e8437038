/* SPDX-License-Identifier: Apache-2.0 */
/* Closes connections to a service, such as the database, from hosts that are not on its list. service_guard.c calls
 * it.
 *
 * The database takes 16 MB and more for each connection before anybody has logged in: a job that opens 400 would make
 * it use all of a machine's memory. Only slurmdbd's host has to connect.
 */
#define _GNU_SOURCE
#include "known_peers.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "native/base/clock.h"

/* Addresses of all hosts together. */
#define MOST 32
/* In s. A container that was made anew has another address; asked is when somebody comes who is not known. */
#define ASKED_EVERY_S 1

static char *host_names;
static struct in6_addr known[MOST];
static size_t n_known;
/* When next, of CLOCK_MONOTONIC. */
static int64_t asks_at;

void jail_peers_set(const char *hosts)
{
	host_names = hosts && *hosts ? strdup(hosts) : NULL;
}

/* IPv4 as IPv6 writes it. Returns whether it is either. */
static bool read_address(const struct sockaddr *from, struct in6_addr *address)
{
	const struct sockaddr_in *in = (const void *)from;
	const struct sockaddr_in6 *in6 = (const void *)from;

	memset(address, 0, sizeof(*address));
	if (from->sa_family == AF_INET6) {
		*address = in6->sin6_addr;
	} else if (from->sa_family == AF_INET) {
		memset(address->s6_addr + 10, 0xff, 2);
		memcpy(address->s6_addr + 12, &in->sin_addr, 4);
	}
	return from->sa_family == AF_INET || from->sa_family == AF_INET6;
}

static size_t look_up(const char *name, struct in6_addr *list, size_t filled)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;

	if (getaddrinfo(name, NULL, &hints, &found))
		return filled;
	for (const struct addrinfo *one = found; one && filled < MOST; one = one->ai_next)
		filled += read_address(one->ai_addr, &list[filled]);
	freeaddrinfo(found);
	return filled;
}

/* Where no name is known for a moment, the addresses of before stay. */
static void look_all_up(void)
{
	char *list = strdup(host_names), *rest = NULL;
	struct in6_addr fresh[MOST];
	size_t filled = 0;

	for (char *name = list ? strtok_r(list, " ", &rest) : NULL; name; name = strtok_r(NULL, " ", &rest))
		filled = look_up(name, fresh, filled);
	free(list);
	if (!filled)
		return;
	memcpy(known, fresh, filled * sizeof(*fresh));
	n_known = filled;
}

static bool is_among(const struct in6_addr *address)
{
	for (size_t i = 0; i < n_known; i++)
		if (!memcmp(&known[i], address, sizeof(*address)))
			return true;
	return false;
}

bool jail_peers_is_known(int fd)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t size = sizeof(peer);
	struct in6_addr address;

	if (!host_names || getpeername(fd, (struct sockaddr *)&peer, &size) || !read_address((struct sockaddr *)&peer, &address) ||
	    is_among(&address))
		return true;
	if (clock_s() < asks_at)
		return false;
	look_all_up();
	asks_at = clock_s() + ASKED_EVERY_S;
	return is_among(&address);
}
