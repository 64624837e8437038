/* SPDX-License-Identifier: Apache-2.0 */
/* The network is the node's own: sockets without a path, raw packets, settings. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <dirent.h>
#include <unistd.h>

#include "attack.h"

/* Linux 6.5 and 6.11; numbers of the kernel's interface, which headers of older systems lack. */
#define PEER_PROCESS 77 /* SO_PEERPIDFD */
#define MOUNT_NAMESPACE_OF_PROCESS _IO(0xFF, 3) /* PIDFD_GET_MNT_NAMESPACE */

static int reach(const char *path, int abstract)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	if (abstract)
		address.sun_path[0] = '\0';
	int result = fd < 0 ? -1 : connect(fd, (struct sockaddr *)&address, size);
	if (fd >= 0)
		close(fd);
	return result;
}

static void abstract_sockets(void)
{
	char line[512], path[256];
	FILE *list = fopen("/proc/net/unix", "r");

	if (!list)
		held("open /proc/net/unix");
	while (list && fgets(line, sizeof(line), list))
		if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %255s", path) == 1 && path[0] == '@' && !reach(path, 1))
			escaped("the abstract socket %s takes connections", path);
	errno = 0;
	held("no abstract socket of the outside takes connections");
}

/* Whoever listens can be had as a process by a connection to it, whatever its number is here, or none. */
static void peer_process(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int peer = -1, fd = socket(AF_UNIX, SOCK_STREAM, 0);
	socklen_t size = sizeof(peer);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", given("VOUCHING_SOCKET"));
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		broken("connect to %s", address.sun_path);
	if (getsockopt(fd, SOL_SOCKET, PEER_PROCESS, &peer, &size))
		absent("SO_PEERPIDFD");
	if (!syscall(SYS_pidfd_send_signal, peer, 0, NULL, 0))
		escaped("munged takes signals");
	if (syscall(SYS_pidfd_getfd, peer, 0, 0) >= 0)
		escaped("a descriptor of munged's was taken");
	if (ioctl(peer, MOUNT_NAMESPACE_OF_PROCESS, 0) >= 0 || !setns(peer, CLONE_NEWNS))
		escaped("munged's mount namespace was had");
	held("munged as a process");
}

/* slurmstepd's, by which a step's descriptors and environment can be had. */
static void step_sockets(void)
{
	char path[512];
	DIR *spool = opendir("/var/spool/slurmd");

	for (struct dirent *entry; spool && (entry = readdir(spool));) {
		struct stat st;
		snprintf(path, sizeof(path), "/var/spool/slurmd/%s", entry->d_name);
		if (!lstat(path, &st) && S_ISSOCK(st.st_mode))
			escaped("%s is there", path);
	}
	snprintf(path, sizeof(path), "/var/spool/slurmd/%s_%s.%s", given("SLURMD_NODENAME"), given("SLURM_JOB_ID"),
		 given("SLURM_STEP_ID"));
	if (!reach(path, 0))
		escaped("%s takes connections", path);
	held("connect to %s", path);
}

/* While it starts again, it is whoever's who may have it. */
static void slurmds_port(void)
{
	const struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)given_number("SLURMD_PORT")) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0)
		broken("socket");
	if (!bind(fd, (const struct sockaddr *)&address, sizeof(address)) || errno == EADDRINUSE)
		escaped("any user may listen on port %d, once slurmd does not", ntohs(address.sin_port));
	held("bind to port %d", ntohs(address.sin_port));
}

static void raw_packets(void)
{
	if (socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)) >= 0)
		escaped("every packet of the node can be read");
	if (socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) >= 0)
		escaped("raw packets can be sent");
	held("raw socket");
}

static void network_settings(void)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request))
		broken("flags of lo");
	if (ioctl(fd, SIOCSIFFLAGS, &request)) /* as they are */
		held("ioctl SIOCSIFFLAGS");
	escaped("the node's network can be set");
}

const struct attack socket_attacks[] = {
	{ "abstract-sockets", abstract_sockets },
	{ "peer-process", peer_process },
	{ "step-sockets", step_sockets },
	{ "slurmds-port", slurmds_port },
	{ "raw-packets", raw_packets },
	{ "network-settings", network_settings },
	{ NULL, NULL },
};
