/* SPDX-License-Identifier: Apache-2.0 */
/* service_guard.so: limits what users can take of slurmdbd, its database, slurmrestd, sackd and munged, in
 * connections and memory, and protects slurmdbd's database. The images' entrypoints load it into these daemons
 * (LD_PRELOAD).
 *
 * Jobs reach the first three over the network. slurmdbd serves a hundred connections, slurmrestd 124, MariaDB
 * max_connections, and each waits for whoever holds one. slurmdbd allocates a message of a gigabyte before it knows
 * the sender. Users of a node reach sackd (150 connections) and munged (one per thread) by a socket.
 *   SERVICE_GUARD_CONNECTIONS  the most that stay open: some less than the service takes, for one that is ended goes on for a moment
 *   SERVICE_GUARD_PEERS  names of the hosts that the service is for, with blanks between (default: all)
 *   SERVICE_GUARD_BYTES  the most bytes that one connection may bring (default: any number)
 *   SERVICE_GUARD_HTTP  if set, to anything: requests are HTTP, not messages of Slurm's
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "known_peers.h"
#include "queries.h"
#include "request_bodies.h"
#include "service_connections.h"
#include "spank_jail/guards/common/array_sizes.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/large_messages.h"
#include "spank_jail/guards/common/node_names.h"
#include "transactions.h"

/* Slurm has no larger clusters. */
#define MOST_NAMES 65536
/* For the database, which finds an error in it, and for the log. */
#define NO_QUERY "refused: a text of a client's would be a part of the query"
/* Of slurmdb_admin_level_t: 0 to 3. */
#define OPERATOR 2

#define EXPORT __attribute__((visibility("default")))

EXPORT int accept(int listener, struct sockaddr *address, socklen_t *size);
EXPORT int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags);
EXPORT int close(int fd);
EXPORT ssize_t read(int fd, void *buffer, size_t size);
EXPORT ssize_t recv(int fd, void *buffer, size_t size, int flags);
EXPORT void *hostlist_create_dims(const char *names, int dimensions);
EXPORT int unpackstr_xmalloc_escaped(char **text, uint32_t *size, void *buffer);
EXPORT int mysql_query(void *database, const char *query);
EXPORT signed char mysql_autocommit(void *database, signed char mode);
EXPORT signed char mysql_commit(void *database);
EXPORT signed char mysql_rollback(void *database);
EXPORT void mysql_close(void *database);
EXPORT uid_t auth_g_get_uid(void *credential);

static int (*own_accept4)(int, struct sockaddr *, socklen_t *, int);
static int (*own_close)(int);
static ssize_t (*own_read)(int, void *, size_t);
/* libslurm's; of a program without it NULL, and nobody asks. */
static void *(*own_list)(const char *, int);
static ssize_t (*own_recv)(int, void *, size_t, int);
static int (*own_unpack)(char **, uint32_t *, void *);
static int (*own_query)(void *, const char *);
static signed char (*own_autocommit)(void *, signed char), (*own_commit)(void *), (*own_rollback)(void *);
static void (*own_database_close)(void *);
static uid_t (*own_uid)(void *);
static void *(*make_room)(size_t, size_t, bool, bool, const char *, int, const char *);
static void (*give_room)(void **);
static int (*admin_level)(void *, uint32_t);
static bool is_slurm, is_bounded;
/* Whose connection to slurmdbd this thread serves; root: nobody's yet. */
static _Thread_local uid_t client;
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
		{ "hostlist_create_dims", &own_list }, { "unpackstr_xmalloc_escaped", &own_unpack },
		{ "mysql_query", &own_query }, { "mysql_autocommit", &own_autocommit }, { "auth_g_get_uid", &own_uid },
		{ "mysql_commit", &own_commit }, { "mysql_rollback", &own_rollback }, { "mysql_close", &own_database_close },
		{ "slurm_xcalloc", &make_room }, { "slurm_xfree", &give_room }, { "assoc_mgr_get_admin_level", &admin_level },
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
	const char *most = getenv("SERVICE_GUARD_CONNECTIONS"), *bytes = getenv("SERVICE_GUARD_BYTES"), *http = getenv("SERVICE_GUARD_HTTP");

	const struct link_map *libslurm = jail_imports_library("libslurm");
	struct jail_error error;

	is_bounded = http || bytes;
	is_slurm = libslurm && !http;
	/* slurmrestd has its arrays of slurmctld: of as many jobs as there are. */
	if (is_slurm)
		(void)jail_array_sizes_guard(libslurm, &error);
	jail_service_connections_limit(most ? strtoul(most, NULL, 10) : 0);
	jail_bodies_limit(bytes ? strtoul(bytes, NULL, 10) : 0);
	jail_peers_set(getenv("SERVICE_GUARD_PEERS"));
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
	if (fd >= 0 && !jail_peers_is_known(fd)) {
		own_close(fd);
		/* As one that its client has given up. */
		errno = ECONNABORTED;
		return -1;
	}
	if (is_bounded)
		jail_bodies_begin(fd);
	jail_service_connections_add(fd);
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
	if (is_bounded)
		jail_bodies_forget(fd);
	jail_service_connections_remove(fd);
	return own_close(fd);
}

/* What was read is none of a request's where it has become too large: the connection ends. */
static ssize_t bounded(int fd, ssize_t got)
{
	if (!is_bounded || got <= 0 || jail_bodies_may_grow(fd, (size_t)got))
		return got;
	(void)shutdown(fd, SHUT_RDWR);
	return 0;
}

/* The thread reads what a client says, or another socket. */
static void note_client(int fd)
{
	if (jail_large_messages_is_watched(fd))
		jail_transactions_serve(fd);
}

ssize_t read(int fd, void *buffer, size_t size)
{
	if (!is_messages())
		return bounded(fd, own_read(fd, buffer, size));
	note_client(fd);
	is_inside = true;
	ssize_t got = jail_large_messages_read(fd, buffer, size);
	is_inside = false;
	return got;
}

ssize_t recv(int fd, void *buffer, size_t size, int flags)
{
	if (!is_messages())
		return bounded(fd, own_recv(fd, buffer, size, flags));
	note_client(fd);
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

/* libslurm's, of the texts of slurmdbd's clients. */
int unpackstr_xmalloc_escaped(char **text, uint32_t *size, void *buffer)
{
	if (!own_unpack)
		find_functions();
	int failed = own_unpack(text, size, buffer);
	if (failed || !*text)
		return failed;
	size_t length = strlen(*text), escaped = jail_queries_escape(*text, NULL);
	if (escaped == length)
		return 0;
	char *more = escaped < UINT32_MAX ? make_room(1, escaped + 1, false, true, __FILE__, __LINE__, __func__) : NULL;
	if (more)
		jail_queries_escape(*text, more);
	give_room((void **)text);
	*text = more;
	*size = more ? (uint32_t)escaped + 1 : 0;
	return more ? 0 : -1;
}

/* The database's library is loaded by a plugin that is loaded later, and for itself. */
static void find_in_library(void *place, size_t size, const char *name)
{
	const struct link_map *mariadb = jail_imports_library("libmariadb"), *library = mariadb ? mariadb : jail_imports_library("libmysqlclient");
	void *handle = library ? dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	void *found = handle ? dlsym(handle, name) : NULL;

	memcpy(place, &found, size);
}

int mysql_query(void *database, const char *query)
{
	if (!own_query)
		find_in_library(&own_query, sizeof(own_query), "mysql_query");
	int failed = own_query(database, jail_queries_is_sound(query) ? query : NO_QUERY);
	if (!failed)
		jail_transactions_add(database, query);
	return failed;
}

/* Of who opens a connection slurmdbd asks it, with the thread that serves it. */
uid_t auth_g_get_uid(void *credential)
{
	if (!own_uid)
		find_functions();
	client = own_uid(credential);
	return client;
}

/* With mode 0 a client changes what it may, and says later whether that is to stay: until then what it changed, as the comment of a
 * job of one's own, is locked, and slurmctld's word of that job waits, with all that it would say after. So it is for who administers
 * the accounting alone; for others each change stays. */
signed char mysql_autocommit(void *database, signed char mode)
{
	if (!own_autocommit)
		find_in_library(&own_autocommit, sizeof(own_autocommit), "mysql_autocommit");
	bool is_users = !mode && client && client != geteuid() && admin_level && admin_level(NULL, client) < OPERATOR;
	if (is_users)
		return 0;
	signed char failed = own_autocommit(database, mode);
	if (!failed)
		jail_transactions_begin(database, !mode);
	return failed;
}

signed char mysql_commit(void *database)
{
	if (!own_commit)
		find_in_library(&own_commit, sizeof(own_commit), "mysql_commit");
	signed char failed = own_commit(database);
	if (failed)
		jail_transactions_lose(database);
	else
		jail_transactions_end(database);
	return failed;
}

signed char mysql_rollback(void *database)
{
	if (!own_rollback)
		find_in_library(&own_rollback, sizeof(own_rollback), "mysql_rollback");
	jail_transactions_end(database);
	return own_rollback(database);
}

/* slurmdbd closes one that is broken, too, and opens another. */
void mysql_close(void *database)
{
	if (!own_database_close)
		find_in_library(&own_database_close, sizeof(own_database_close), "mysql_close");
	jail_transactions_lose(database);
	/* The next one may lie at the same address. */
	jail_transactions_begin(database, false);
	own_database_close(database);
}
