/* SPDX-License-Identifier: Apache-2.0 */
/* service_guard.so: bounds the connections and memory that users can take of slurmdbd, of its database and of sackd. The images' entrypoints load it into them (LD_PRELOAD).
 *
 * Jobs reach both over the network. slurmdbd serves a hundred connections, MariaDB as many as max_connections says, and each waits
 * on whoever holds one; slurmdbd makes room for a message of a gigabyte before it knows who sends it. sackd, which users of a node reach by a socket, serves 150. SERVICE_GUARD_CONNECTIONS is
 * how many stay open: some less than the service takes, for one that is ended goes on for a moment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "service_connections.h"
#include "spank_jail/guards/common/array_sizes.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/large_messages.h"
#include "spank_jail/guards/common/node_names.h"

/* Slurm has no larger clusters. */
#define MOST_NAMES 65536

#define EXPORT __attribute__((visibility("default")))

EXPORT int accept(int listener, struct sockaddr *address, socklen_t *size);
EXPORT int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags);
EXPORT int close(int fd);
EXPORT ssize_t read(int fd, void *buffer, size_t size);
EXPORT ssize_t recv(int fd, void *buffer, size_t size, int flags);
EXPORT void *hostlist_create_dims(const char *names, int dimensions);

static int (*own_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*own_close)(int);
static ssize_t (*own_read)(int, void *, size_t);
/* libslurm's; of a program without it NULL, and nobody asks. */
static void *(*own_list)(const char *, int);
static ssize_t (*own_recv)(int, void *, size_t, int);
static bool is_slurm;
/* In a function of large_messages.c, which calls these here. */
static _Thread_local bool is_inside;

/* Another library's constructor may call one of these before ours has run. */
static void find_functions(void)
{
	const struct {
		const char *name;
		void *place;
	} functions[] = {
		{ "accept4", &own_accept4 }, { "close", &own_close }, { "read", &own_read }, { "recv", &own_recv },
		{ "hostlist_create_dims", &own_list },
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *found = dlsym(RTLD_NEXT, functions[i].name);
		memcpy(functions[i].place, &found, sizeof(found));
	}
}

static bool is_messages(void)
{
	if (!own_recv)
		find_functions();
	return is_slurm && !is_inside;
}

__attribute__((constructor)) static void begin(void)
{
	const char *most = getenv("SERVICE_GUARD_CONNECTIONS");

	const struct link_map *libslurm = jail_imports_library("libslurm");
	struct jail_error error;

	is_slurm = libslurm != NULL;
	(void)jail_array_sizes_guard(libslurm, &error);
	jail_crowd_limit(most ? strtoul(most, NULL, 10) : 0);
}

int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
	int fd;

	if (is_messages()) {
		is_inside = true;
		fd = jail_large_messages_accept4(listener, address, size, flags);
		is_inside = false;
		return fd;
	}
	fd = own_accept4(listener, address, size, flags);
	jail_crowd_add(fd);
	return fd;
}

int accept(int listener, struct sockaddr *address, socklen_t *size)
{
	return accept4(listener, address, size, 0);
}

int close(int fd)
{
	if (is_messages()) {
		is_inside = true;
		int result = jail_large_messages_close(fd);
		is_inside = false;
		return result;
	}
	jail_crowd_remove(fd);
	return own_close(fd);
}

ssize_t read(int fd, void *buffer, size_t size)
{
	if (!is_messages())
		return own_read(fd, buffer, size);
	is_inside = true;
	ssize_t got = jail_large_messages_read(fd, buffer, size);
	is_inside = false;
	return got;
}

ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
	if (!is_messages())
		return own_recv(fd, buffer, size, flags);
	is_inside = true;
	ssize_t got = jail_large_messages_recv(fd, buffer, size, flags);
	is_inside = false;
	return got;
}

/* slurmdbd makes each name of `sacct --nodelist=a[0-65535]b[0-65535]`, of which there are billions, and looks for it. */
void *hostlist_create_dims(const char *names, int dimensions)
{
	if (!own_list)
		find_functions();
	return own_list(names && jail_node_names_count(names, MOST_NAMES) > MOST_NAMES ? "too-many-nodes-named" : names, dimensions);
}
