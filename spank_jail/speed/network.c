/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the network between the nodes of a job, by TCP. node_speed.c calls it.
 *
 * It does not use MPI: the libraries would be the jail's, which users may change (docs/decisions/health.md).
 */
#define _GNU_SOURCE
#include "speed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK ((size_t)256 << 10)
/* For one that is to connect, or to send something. */
#define PATIENCE_MS 15000
#define GREETING 48 /* a token and a rank below 65,536 */
#define MOST_ARRIVALS 32

/* This node's address, as the host of srun sees it. */
static int own_address(char *text, size_t size)
{
	const char *theirs = getenv("SLURM_LAUNCH_NODE_IPADDR");
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(9) };
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), failed;

	if (!theirs || inet_pton(AF_INET, theirs, &address.sin_addr) != 1) {
		close(fd);
		errno = EDESTADDRREQ;
		return -1;
	}
	failed = fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
		 getsockname(fd, (struct sockaddr *)&address, &length) ||
		 !inet_ntop(AF_INET, &address.sin_addr, text, (socklen_t)size);
	if (fd >= 0)
		close(fd);
	return failed ? -1 : 0;
}

int speed_listen(struct speed_peers *peers)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);

	if (own_address(peers->address, sizeof(peers->address)))
		return -1;
	if (inet_pton(AF_INET, peers->address, &address.sin_addr) != 1)
		return -1;
	peers->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (peers->listener < 0 || bind(peers->listener, (struct sockaddr *)&address, sizeof(address)) ||
	    listen(peers->listener, 64) || getsockname(peers->listener, (struct sockaddr *)&address, &length))
		return -1;
	peers->port = ntohs(address.sin_port);
	return 0;
}

/* All of it, within `PATIENCE_MS` of silence. Returns 0 or -1. */
static int move(int fd, char *data, size_t length, bool sends)
{
	while (length) {
		struct pollfd ready = { .fd = fd, .events = sends ? POLLOUT : POLLIN };
		int n = poll(&ready, 1, PATIENCE_MS);
		if (n <= 0) {
			errno = n ? errno : ETIMEDOUT;
			return -1;
		}
		ssize_t moved = sends ? send(fd, data, length, MSG_NOSIGNAL) : recv(fd, data, length, 0);
		if (moved <= 0 && errno != EAGAIN && errno != EINTR) {
			errno = moved ? errno : ECONNRESET;
			return -1;
		}
		if (moved > 0) {
			data += moved;
			length -= (size_t)moved;
		}
	}
	return 0;
}

static void greet(const struct speed_peers *peers, size_t rank, char line[GREETING])
{
	memset(line, 0, GREETING);
	snprintf(line, GREETING, "%s %hu", peers->token, (unsigned short)rank);
}

static int set_up(int fd)
{
	int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fcntl(fd, F_SETFL, O_NONBLOCK);
}

static int connect_to(struct speed_peers *peers, size_t other)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	char line[GREETING], host[80];

	snprintf(host, sizeof(host), "%s", peers->hosts[other]);
	char *colon = strrchr(host, ':');
	if (!colon)
		return -1;
	*colon = 0;
	address.sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		return -1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	greet(peers, peers->me, line);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) || set_up(fd) ||
	    move(fd, line, sizeof(line), true)) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* Connections that have not yet said all of their greeting, the oldest first. */
static struct arrival {
	int fd;
	size_t said;
	char line[GREETING];
} arrivals[MOST_ARRIVALS];
static size_t arrived;

static void forget(size_t at)
{
	memmove(&arrivals[at], &arrivals[at + 1], (--arrived - at) * sizeof(*arrivals));
}

/* Whoever holds connections and says nothing is in nobody's way: the oldest makes room. */
static void take(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (set_up(fd)) {
		close(fd);
		return;
	}
	if (arrived == MOST_ARRIVALS) {
		close(arrivals[0].fd);
		forget(0);
	}
	arrivals[arrived++] = (struct arrival){ .fd = fd };
}

/* Closes a connection that brings no token. Returns whether more is to come. */
static bool hear_from(struct speed_peers *peers, struct arrival *one)
{
	char expected[GREETING];
	ssize_t n = recv(one->fd, one->line + one->said, GREETING - one->said, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	one->said += n > 0 ? (size_t)n : 0;
	if (n > 0 && one->said < GREETING)
		return true;
	for (size_t rank = 0; rank < peers->n && n > 0; rank++) {
		greet(peers, rank, expected);
		if (peers->connected[rank] < 0 && !memcmp(one->line, expected, GREETING)) {
			peers->connected[rank] = one->fd;
			return false;
		}
	}
	close(one->fd);
	return false;
}

/* Takes connections until `other` has come. */
static int accept_from(struct speed_peers *peers, size_t other)
{
	double until = speed_now() + PATIENCE_MS / 1000.0;

	while (peers->connected[other] < 0 && speed_now() < until) {
		struct pollfd ready[MOST_ARRIVALS + 1] = { { .fd = peers->listener, .events = POLLIN } };

		for (size_t i = 0; i < arrived; i++)
			ready[i + 1] = (struct pollfd){ .fd = arrivals[i].fd, .events = POLLIN };
		if (poll(ready, arrived + 1, 1000) <= 0)
			continue;
		for (size_t i = arrived; i > 0; i--)
			if (ready[i].revents && !hear_from(peers, &arrivals[i - 1]))
				forget(i - 1);
		if (ready[0].revents)
			take(peers->listener);
	}
	errno = ETIMEDOUT;
	return peers->connected[other] < 0 ? -1 : 0;
}

/* The higher rank is connected to. */
static int meet(struct speed_peers *peers, size_t other)
{
	if (peers->connected[other] >= 0)
		return 0;
	if (other < peers->me)
		return accept_from(peers, other);
	peers->connected[other] = connect_to(peers, other);
	return peers->connected[other] < 0 ? -1 : 0;
}

/* Sends until `until`, and then that this is the end; receives until the other says so. Bytes in `received`, and when the last came. */
static int pour(int fd, double until, double *received, double *last)
{
	static char out[BLOCK], in[BLOCK];
	size_t sent = BLOCK;
	bool over = false, ended = false;
	double silent = speed_now();

	while (!over || !ended || sent < BLOCK) {
		if (sent == BLOCK && !over) {
			over = speed_now() >= until;
			/* A block says by its first byte whether another follows. */
			out[0] = over;
			sent = 0;
		}
		struct pollfd ready = { .fd = fd, .events = (short)((ended ? 0 : POLLIN) | (sent < BLOCK ? POLLOUT : 0)) };
		if (poll(&ready, 1, 1000) < 0 || speed_now() - silent > PATIENCE_MS / 1000.0)
			return -1;
		if (ready.revents & POLLOUT) {
			ssize_t moved = send(fd, out + sent, BLOCK - sent, MSG_NOSIGNAL);
			if (moved < 0 && errno != EAGAIN)
				return -1;
			sent += moved > 0 ? (size_t)moved : 0;
		}
		if (ready.revents & (POLLIN | POLLHUP) && !ended) {
			size_t at = (size_t)*received % BLOCK;
			ssize_t moved = recv(fd, in + at, BLOCK - at, 0);
			if (!moved || (moved < 0 && errno != EAGAIN))
				return -1;
			*received += moved > 0 ? (double)moved : 0;
			ended = moved > 0 && at + (size_t)moved == BLOCK && in[0] == 1;
			*last = speed_now();
		}
		silent = ready.revents ? speed_now() : silent;
	}
	return 0;
}

double speed_pair(struct speed_peers *peers, size_t other, double seconds)
{
	double received = 0, last = 0, theirs, mine;
	char ready = 'r';

	if (other >= peers->n || other == peers->me || meet(peers, other))
		return -1;
	int fd = peers->connected[other];
	/* Both begin at once. */
	if (move(fd, &ready, 1, true) || move(fd, &ready, 1, false))
		return -1;
	double begun = speed_now();
	if (pour(fd, begun + seconds, &received, &last))
		return -1;
	mine = received / 1e6 / (last > begun ? last - begun : 1e-9);
	/* What the other received: the two have one result. */
	if (move(fd, (char *)&mine, sizeof(mine), true) || move(fd, (char *)&theirs, sizeof(theirs), false))
		return -1;
	return mine < theirs ? mine : theirs;
}

/* Both ways at once, the lower rank first: what is sent fits the sockets, or the other reads it. */
static int exchange(struct speed_peers *peers, size_t other, double *out, double *in, size_t count)
{
	size_t length = count * sizeof(*out);

	if (meet(peers, other))
		return -1;
	int fd = peers->connected[other];
	if (peers->me < other)
		return move(fd, (char *)out, length, true) || move(fd, (char *)in, length, false) ? -1 : 0;
	return move(fd, (char *)in, length, false) || move(fd, (char *)out, length, true) ? -1 : 0;
}

static void add(double *sum, const double *other, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sum[i] += other[i];
}

/* Those beyond the last power of two give theirs to one below it, and get the sum from there. */
static int reduce(struct speed_peers *peers, double *sum, double *other, size_t count)
{
	size_t even = 1, length = count * sizeof(*sum);

	while (even * 2 <= peers->n)
		even *= 2;
	if (peers->me >= even) {
		size_t partner = peers->me - even;
		return meet(peers, partner) || move(peers->connected[partner], (char *)sum, length, true) ||
		       move(peers->connected[partner], (char *)sum, length, false) ? -1 : 0;
	}
	size_t extra = peers->me + even;
	if (extra < peers->n) {
		if (meet(peers, extra) || move(peers->connected[extra], (char *)other, length, false))
			return -1;
		add(sum, other, count);
	}
	for (size_t step = 1; step < even; step *= 2) {
		if (exchange(peers, peers->me ^ step, sum, other, count))
			return -1;
		add(sum, other, count);
	}
	return extra < peers->n ? move(peers->connected[extra], (char *)sum, length, true) : 0;
}

double speed_reduce(struct speed_peers *peers, size_t count, unsigned times)
{
	double *sum = malloc(count * sizeof(*sum)), *other = malloc(count * sizeof(*other));
	double begun = speed_now(), ranks = (double)(peers->n * (peers->n + 1)) / 2;
	int wrong = sum && other ? 0 : ENOMEM;

	for (unsigned time = 0; time < times && !wrong; time++) {
		for (size_t i = 0; i < count; i++)
			sum[i] = (double)(peers->me + 1) + (double)((i + time) % 7);
		if (reduce(peers, sum, other, count))
			wrong = errno ? errno : EIO;
		/* Whole numbers far below 2^53: there is one right sum, in any order. */
		for (size_t i = 0; i < count && !wrong; i++)
			wrong = sum[i] - ranks - (double)(peers->n * ((i + time) % 7)) != 0 ? EBADMSG : 0;
	}
	double took = speed_now() - begun;
	free(sum);
	free(other);
	errno = wrong;
	return wrong ? -1 : (double)(count * sizeof(double)) * times / 1e6 / took;
}
