/* SPDX-License-Identifier: Apache-2.0 */
/* pmi-messages direct HOST PORT | tree HOST PORT: what another user may tell a step by Slurm's MPI plugins, over TCP.
 *
 * direct: the message by which mpi_pmix of one node greets that of another, of 1 GB; prints how much of it is taken. tree: what
 * mpi_pmi2 of a node tells srun at a fence, from a node that is far beyond the step's; prints how the connection ends. The caller
 * takes a port of root's where it may. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANNOUNCED 1000000000U
#define ENOUGH (64U << 20)
/* From which Slurm's plugins connect: mpi_pmix, and mpi_pmi2. */
#define PMIX_PORTS 512
#define PMI2_PORTS 560
#define N_PORTS 48

static int open_from(const struct addrinfo *to, int port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || (port && bind(fd, (const void *)&own, sizeof(own))) || connect(fd, to->ai_addr, to->ai_addrlen)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* How many bytes the other end takes, all but what fits into buffers. */
static size_t send_all(int fd, const void *start, size_t size)
{
	static char more[1 << 16];
	size_t taken = 0;
	ssize_t sent = send(fd, start, size, MSG_NOSIGNAL);

	while (sent > 0 && taken < ENOUGH) {
		sent = send(fd, more, sizeof(more), MSG_NOSIGNAL);
		taken += sent > 0 ? (size_t)sent : 0;
	}
	return taken;
}

static void direct(int fd)
{
	/* Magic, kind, sequence, node, size: in the network's order; and that an address follows. */
	uint32_t numbers[5] = { htonl(0xcafeca11), htonl(5), 0, 0, htonl(ANNOUNCED) };
	char message[sizeof(numbers) + 1];

	memcpy(message, numbers, sizeof(numbers));
	message[sizeof(numbers)] = 1;
	printf("taken: %zu\n", send_all(fd, message, sizeof(message)));
}

static void tree(int fd)
{
	/* KVS_FENCE: node, its name, its children, sequence. */
	static const char message[] = "\0\0\0\x17" "\0\0" "\x05\xf5\xe1\0" "\0\0\0\x05" "node\0" "\0\0\0\0" "\0\0\0\x01";
	struct timeval patience = { .tv_sec = 2 };
	char byte;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (send(fd, message, sizeof(message) - 1, MSG_NOSIGNAL) < 0)
		printf("sent: %s\n", strerror(errno));
	else
		printf("ended: %zd\n", recv(fd, &byte, 1, 0));
}

int main(int argc, char *argv[])
{
	const struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	struct addrinfo *to;
	int fd = -1;

	if (argc != 4 || getaddrinfo(argv[2], argv[3], &hints, &to)) {
		fprintf(stderr, "nobody is called %s\n", argc == 4 ? argv[2] : "that");
		return 2;
	}
	bool is_direct = !strcmp(argv[1], "direct");
	for (int i = 0, first = is_direct ? PMIX_PORTS : PMI2_PORTS; fd < 0 && i < N_PORTS; i += 8)
		fd = open_from(to, first + i);
	if (fd < 0)
		fd = open_from(to, 0);
	if (fd < 0) {
		printf("refused: %s\n", strerror(errno));
		return 0;
	}
	if (is_direct)
		direct(fd);
	else
		tree(fd);
	return 0;
}
