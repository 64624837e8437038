/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how many connections to a service one client address can hold, so that it cannot shut others out.
 * service_guard.c calls it.
 *
 * Refusing new connections would help whoever holds the old ones. So a new one is accepted, and the address with the
 * most connections, or one that has sent nothing, loses one.
 */
#define _GNU_SOURCE
#include "service_connections.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "native/base/clock.h"
#include "spank_jail/guards/common/client_addresses.h"

/* A service that has a few hundred connections has no larger numbers. */
#define MOST_FILES 4096
/* In ms. A client says who it is at once. */
#define BEGINS_WITHIN_MS 1000

struct connection {
	bool is_open;
	unsigned char address[8];
	long since_ms;
};

/* What speaks for ending a connection, the first first. */
struct reason {
	bool is_silent;
	size_t of_address;
	unsigned idle_ms;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct connection connections[MOST_FILES];
static size_t open_ones, limit;

/* Who is at the other end: an address, or on this node a user. */
static void read_peer(int fd, unsigned char peer[8])
{
	struct ucred user;
	int domain = 0;
	socklen_t domain_size = sizeof(domain), user_size = sizeof(user);

	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) || domain != AF_UNIX) {
		jail_addresses_read(fd, peer);
		return;
	}
	memset(peer, 0, 8);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &user_size))
		return;
	peer[0] = 1; /* no address of a network begins so */
	memcpy(peer + 4, &user.uid, 4);
}

static size_t count_of(const unsigned char address[8])
{
	size_t count = 0;

	for (int fd = 0; fd < MOST_FILES; fd++)
		count += connections[fd].is_open && !memcmp(connections[fd].address, address, 8);
	return count;
}

static struct reason reason_of(int fd, long now)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	/* A Unix socket has none: what its clients ask, they ask at once. */
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		info.tcpi_last_data_recv = (unsigned)(now - connections[fd].since_ms);
	return (struct reason){
		.is_silent = !info.tcpi_bytes_received && now - connections[fd].since_ms > BEGINS_WITHIN_MS,
		.of_address = count_of(connections[fd].address),
		.idle_ms = info.tcpi_last_data_recv,
	};
}

static bool is_better(const struct reason *reason, const struct reason *than)
{
	if (reason->is_silent != than->is_silent)
		return reason->is_silent;
	if (reason->of_address != than->of_address)
		return reason->of_address > than->of_address;
	return reason->idle_ms > than->idle_ms;
}

/* Its thread finds that the client has gone. A number that has become another socket meanwhile is let alone. Not SHUT_RDWR: what
 * poll(2) then says is fatal to slurmdbd 22.05. */
static void end(int fd)
{
	unsigned char address[8];

	read_peer(fd, address);
	if (!memcmp(address, connections[fd].address, 8))
		(void)shutdown(fd, SHUT_RD);
	connections[fd].is_open = false;
	open_ones--;
}

static void end_another(int new)
{
	const long now = clock_ms();
	struct reason best = { 0 };
	int found = -1;

	for (int fd = 0; fd < MOST_FILES; fd++) {
		if (!connections[fd].is_open || fd == new)
			continue;
		struct reason reason = reason_of(fd, now);
		if (found < 0 || is_better(&reason, &best)) {
			best = reason;
			found = fd;
		}
	}
	if (found >= 0)
		end(found);
}

void jail_service_connections_limit(size_t most)
{
	limit = most;
}

void jail_service_connections_add(int fd)
{
	struct connection connection = { .is_open = true, .since_ms = clock_ms() };

	if (!limit || fd < 0 || fd >= MOST_FILES)
		return;
	read_peer(fd, connection.address);
	pthread_mutex_lock(&lock);
	open_ones -= connections[fd].is_open;
	connection.is_open = memcmp(connection.address, (const unsigned char[8]){ 0 }, 8);
	connections[fd] = connection;
	open_ones += connection.is_open;
	if (open_ones > limit)
		end_another(fd);
	pthread_mutex_unlock(&lock);
}

void jail_service_connections_remove(int fd)
{
	if (!limit || fd < 0 || fd >= MOST_FILES)
		return;
	pthread_mutex_lock(&lock);
	open_ones -= connections[fd].is_open;
	connections[fd].is_open = false;
	pthread_mutex_unlock(&lock);
}
