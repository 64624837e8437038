/* SPDX-License-Identifier: Apache-2.0 */
/* Lets only the step's own user connect to the PMIx server in slurmstepd, which does as root what it is asked over
 * TCP. plugin.c calls it. */
#define _GNU_SOURCE
#include "pmix.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "peer_uid.h"

/* The place of job_control among the calls of pmix_server_module_t (PMIx Standard 3.0, chapter 11; releases add at the end). */
#define JOB_CONTROL 19

/* One step a process. */
static struct {
	uid_t user;
	void **host; /* libpmix's copy of Slurm's pmix_server_module_t */
} guarded_server;

/* Makes of `fd` a connection that the other end has closed, whatever it sent: the library's listener ends after some errors. */
static int hang_up(int fd)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
		close(fd);
		errno = ECONNABORTED;
		return -1;
	}
	close(ends[1]);
	fd = dup3(ends[0], fd, O_CLOEXEC);
	close(ends[0]);
	return fd;
}

/* In place of accept(2) in libpmix. Its own proof of who connects, "native", is the uid that the other end says to have. */
static int accept_user(int listener, struct sockaddr *address, socklen_t *size)
{
	uid_t uid;
	int fd = accept(listener, address, size);

	if (fd < 0)
		return fd;
	/* It asks Slurm what it can do, and says "not supported" for what is not. The removal of files that a process names
	 * (PMIX_REGISTER_CLEANUP) is part of job control, and the library does it itself: by any path, as root. */
	guarded_server.host[JOB_CONTROL] = NULL;
	if (!jail_peer_uid(fd, &uid) && uid == guarded_server.user)
		return fd;
	return hang_up(fd);
}

int jail_pmix_guard(uid_t user, struct jail_error *err)
{
	struct link_map *map;
	Dl_info ignored;

	/* Loaded with the plugin of Slurm's that needs it, which is before ours are. */
	void *server = dlsym(RTLD_DEFAULT, "PMIx_server_init");
	if (!server)
		return 0;
	guarded_server.user = user;
	guarded_server.host = dlsym(RTLD_DEFAULT, "pmix_host_server");
	if (!guarded_server.host || !dladdr1(server, &ignored, (void **)&map, RTLD_DL_LINKMAP))
		return jail_fail(err, "dlsym", 0, "this libpmix has no pmix_host_server: its server would remove what a task "
				 "names on the node; use srun --mpi=none or --mpi=pmi2");
	int missing = jail_imports_replace(map, "accept", (void *)accept_user, err);
	return missing <= 0 ? missing : jail_fail(err, "accept", 0, "libpmix does not use it: its server takes connections in an "
						  "unknown way, and other users could act as this one; use srun --mpi=none or "
						  "--mpi=pmi2");
}
