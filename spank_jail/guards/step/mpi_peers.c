/* SPDX-License-Identifier: Apache-2.0 */
/* Lets only slurmstepds, and the step's srun, connect to the MPI plugins in slurmstepd and srun.
 * plugin.c calls it. */
#define _GNU_SOURCE
#include "mpi_peers.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/node_names.h"
#include "peer_uid.h"

/* As rsh(1) takes them, and below slurmd's own; NFS mounts take those from 665 on. Two ranges: with mpi_pmi2 the user says where
 * slurmstepd connects, and what. */
struct ports {
	uint16_t first, last;
};
static const struct ports pmix_ports = { 512, 559 }, pmi2_ports = { 560, 617 };

/* What srun sends to the step by mpi_pmi2, all of it answers: KVS_FENCE_RESP, SPAWN_RESP and RING_RESP. */
static const uint16_t answers[] = { 1, 3, 8 };
/* What slurmd puts before a message: the uid of who sends it; then come its length and what it is. */
#define BEFORE_COMMAND 8
/* Milliseconds. slurmd sends it in three parts, one after the other. */
#define LONGEST_WAIT 5000

/* One step a process. */
static struct {
	uid_t user;
	/* Slurm's own. Releases differ in what they return: a number, or a pointer. */
	void *(*open_pmix)(void *address);
	void *(*open_pmi2)(void *address, bool again);
} guarded_plugins;

/* From which this thread connects; NULL: from any. */
static _Thread_local const struct ports *connects_from;

static bool is_inet(const struct sockaddr *address)
{
	return address->sa_family == AF_INET || address->sa_family == AF_INET6;
}

static bool is_answer(int fd)
{
	unsigned char start[BEFORE_COMMAND + 2];

	for (int waited = 0; waited < LONGEST_WAIT; waited++) {
		ssize_t got = recv(fd, start, sizeof(start), MSG_PEEK | MSG_DONTWAIT);
		if (!got || (got < 0 && errno != EAGAIN && errno != EINTR))
			return false;
		if (got == sizeof(start)) {
			for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
				if (start[BEFORE_COMMAND] << 8 == (answers[i] & 0xff00) &&
				    start[BEFORE_COMMAND + 1] == (answers[i] & 0xff))
					return true;
			return false;
		}
		usleep(1000);
	}
	return false;
}

static bool is_heard(int fd, const struct ports *ports, bool from_srun)
{
	union socket_address peer;
	struct ucred process;
	socklen_t size = sizeof(peer), process_size = sizeof(process);

	if (getpeername(fd, &peer.any, &size))
		return false;
	if (is_inet(&peer.any)) {
		uint16_t port = ntohs(peer.any.sa_family == AF_INET6 ? peer.six.sin6_port : peer.four.sin_port);
		return port >= ports->first && port <= ports->last;
	}
	/* slurmd connects for who asks it, as that user. */
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &process_size) &&
	       (!process.uid || (from_srun && process.uid == guarded_plugins.user && is_answer(fd)));
}

static int check(int fd, const struct ports *ports, bool from_srun)
{
	if (fd < 0 || is_heard(fd, ports, from_srun))
		return fd;
	close(fd);
	/* The plugins go on after it. */
	errno = ECONNABORTED;
	return -1;
}

static int accept_pmix(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
	return check(accept4(listener, address, size, flags), &pmix_ports, false);
}

static int accept_pmi2(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
	return check(accept4(listener, address, size, flags), &pmi2_ports, true);
}

/* Where it cannot, the other end does not listen. */
static void take_port(int fd, sa_family_t family)
{
	const uint16_t first = connects_from->first, n = (uint16_t)(connects_from->last - first + 1);
	union socket_address own = { 0 };
	uint16_t start = 0;
	const int on = 1;

	own.any.sa_family = family;
	/* Connections that are over keep a port for a minute, which another one can use all the same. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (getrandom(&start, sizeof(start), 0) != sizeof(start))
		start = 0; /* Those that begin at one place try more ports, and that is all. */
	for (int i = 0; i < n; i++) {
		in_port_t port = htons((uint16_t)(first + (start + i) % n));
		if (family == AF_INET6)
			own.six.sin6_port = port;
		else
			own.four.sin_port = port;
		if (!bind(fd, &own.any, family == AF_INET6 ? sizeof(own.six) : sizeof(own.four)) || errno != EADDRINUSE)
			return;
	}
}

/* In place of connect(2) in Slurm's library. */
static int connect_stepd(int fd, const struct sockaddr *address, socklen_t size)
{
	if (connects_from && is_inet(address))
		take_port(fd, address->sa_family);
	return connect(fd, address, size);
}

static void *open_pmix(void *address)
{
	connects_from = &pmix_ports;
	void *opened = guarded_plugins.open_pmix(address);
	connects_from = NULL;
	return opened;
}

static void *open_pmi2(void *address, bool again)
{
	connects_from = &pmi2_ports;
	void *opened = guarded_plugins.open_pmi2(address, again);
	connects_from = NULL;
	return opened;
}

/* Has the plugin connect by `function` in place of Slurm's `name`, whose address it puts at `own`. Returns as
 * jail_imports_replace. */
static int guard_connections(const struct link_map *plugin, const char *name, void *function, void *own, struct jail_error *err)
{
	const struct link_map *library = jail_imports_library("libslurm");
	void *found = dlsym(RTLD_DEFAULT, name);

	if (!library || !found)
		return 1;
	memcpy(own, &found, sizeof(found));
	int missing = jail_imports_replace(library, "connect", (void *)connect_stepd, err);
	return missing ? missing : jail_imports_replace(plugin, name, function, err);
}

static int guard_pmix(const struct link_map *plugin, struct jail_error *err)
{
	int missing = jail_imports_replace(plugin, "accept4", (void *)accept_pmix, err);

	if (!missing)
		missing = guard_connections(plugin, "slurm_open_msg_conn", (void *)open_pmix, &guarded_plugins.open_pmix, err);
	if (missing <= 0)
		return missing;
	return jail_fail(err, NULL, 0, "this mpi_pmix connects steps in an unknown way: other users could act as one of its nodes; use "
			 "srun --mpi=none or --mpi=pmi2");
}

static int guard_pmi2(const struct link_map *plugin, struct jail_error *err)
{
	int missing = jail_imports_replace(plugin, "accept4", (void *)accept_pmi2, err);

	if (!missing)
		missing = guard_connections(plugin, "slurm_open_stream", (void *)open_pmi2, &guarded_plugins.open_pmi2, err);
	if (missing <= 0)
		return missing;
	return jail_fail(err, NULL, 0, "this mpi_pmi2 connects steps in an unknown way: users could write into slurmstepd and into others' "
			 "srun; use srun --mpi=none");
}

int jail_mpi_guard_peers(uid_t user, struct jail_error *err)
{
	const struct link_map *pmix = jail_imports_library("mpi_pmix"), *pmi2 = jail_imports_library("mpi_pmi2");

	guarded_plugins.user = user;
	/* Both have lists of nodes from the environment of the step. */
	if ((pmix || pmi2) && jail_node_names_guard_library(err) < 0)
		return -1;
	return (pmix && guard_pmix(pmix, err)) || (pmi2 && guard_pmi2(pmi2, err)) ? -1 : 0;
}

int jail_mpi_guard_srun(struct jail_error *err)
{
	const struct link_map *pmi2 = jail_imports_library("mpi_pmi2");

	return pmi2 ? guard_pmi2(pmi2, err) : 0;
}
