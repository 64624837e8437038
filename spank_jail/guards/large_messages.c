/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the bytes of messages on their way to slurmd and slurmctld. connections.c and job_submit_jail.c call it.
 *
 * Slurm makes room for a message by the length that is sent before it, up to a gigabyte, and looks for the sender's credential
 * when all of it is there.
 */
#define _GNU_SOURCE
#include "large_messages.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "addresses.h"
#include "imports.h"

/* Numbers above are nobody's. */
#define MOST_FILES 65536
/* Bytes. Messages below that are many, and no matter. */
#define LARGE (1UL << 20)
/* What Slurm takes. Of HTTP, which slurmctld of 25.11 and later speaks, too, the first four bytes are a larger number. */
#define LARGEST (1UL << 30)
/* sbcast sends 8 MiB at a time. */
#define MOST_OF_ONE (128UL << 20)
#define MOST_TOGETHER (512UL << 20)

/* What a connection has of its address while its message comes. */
struct share {
	struct jail_address *address;
	size_t bytes;
};

static bool (*refuse)(const unsigned char *text, size_t size);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct jail_address addresses[JAIL_ADDRESSES_MOST];
static size_t together;
/* Sockets that were accepted from another machine or this one's network. */
static atomic_bool is_accepted[MOST_FILES], is_new[MOST_FILES], is_large[MOST_FILES];
/* Of which a thread has read the length alone, and asks then for as many bytes. slurmctld of 24.11 and slurmd of 25.05, and
 * later ones, read what there is. */
static atomic_bool is_by_length[MOST_FILES];
static struct share shares[MOST_FILES];

static bool take(int fd, size_t bytes)
{
	if (bytes <= LARGE || is_large[fd])
		return true;
	pthread_mutex_lock(&lock);
	struct jail_address *address = jail_addresses_find(addresses, fd);
	bool taken = (!address->messages || address->messages + bytes <= MOST_OF_ONE) &&
		     (!together || together + bytes <= MOST_TOGETHER);
	if (taken) {
		address->served++;
		address->messages += bytes;
		together += bytes;
		shares[fd] = (struct share){ address, bytes };
		is_large[fd] = true;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

static bool is_watched(int fd)
{
	return fd >= 0 && fd < MOST_FILES && is_accepted[fd];
}

/* For Slurm the connection then has ended. */
static ssize_t end(int fd)
{
	(void)shutdown(fd, SHUT_RDWR);
	return 0;
}

/* In place of close(2) in the daemon and in Slurm's library. */
static int close_file(int fd)
{
	if (is_watched(fd)) {
		pthread_mutex_lock(&lock);
		is_accepted[fd] = false;
		if (is_large[fd]) {
			shares[fd].address->served--;
			shares[fd].address->messages -= shares[fd].bytes;
			together -= shares[fd].bytes;
			is_large[fd] = false;
		}
		pthread_mutex_unlock(&lock);
	}
	return close(fd);
}

/* In place of accept4(2) in Slurm's library. */
static int accept_new(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
	int fd = accept4(listener, address, size, flags);

	if (fd >= 0 && fd < MOST_FILES && address && (address->sa_family == AF_INET || address->sa_family == AF_INET6)) {
		is_new[fd] = true;
		is_by_length[fd] = is_large[fd] = false;
		is_accepted[fd] = true;
	}
	return fd;
}

static bool (*speaks_tls)(void);

/* Whether Slurm may have what was read of a new connection: a message's length comes first, in one packet with its header. */
static bool may_begin(int fd, const unsigned char *text, size_t size)
{
	uint32_t length = 0;

	if (speaks_tls && speaks_tls())
		return true;
	if (size < sizeof(length) || (refuse && refuse(text, size)))
		return false;
	memcpy(&length, text, sizeof(length));
	return ntohl(length) > LARGEST || take(fd, ntohl(length));
}

/* Before `size` bytes are read, for which there is room that is not yet used. */
static bool may_read(int fd, size_t size)
{
	if (!is_watched(fd))
		return true;
	if (is_new[fd] && size == sizeof(uint32_t)) {
		is_by_length[fd] = true;
		is_new[fd] = false;
	}
	return !is_by_length[fd] || take(fd, size);
}

static ssize_t judge(int fd, const unsigned char *text, ssize_t got)
{
	if (got <= 0 || !is_watched(fd) || !is_new[fd])
		return got;
	is_new[fd] = false;
	return may_begin(fd, text, (size_t)got) ? got : end(fd);
}

/* In place of read(2) there. */
static ssize_t read_message(int fd, void *buffer, size_t size)
{
	return may_read(fd, size) ? judge(fd, buffer, read(fd, buffer, size)) : end(fd);
}

/* In place of recv(2) there. */
static ssize_t receive_message(int fd, void *buffer, size_t size, int flags)
{
	if (flags & MSG_PEEK)
		return recv(fd, buffer, size, flags);
	return may_read(fd, size) ? judge(fd, buffer, recv(fd, buffer, size, flags)) : end(fd);
}

int jail_large_messages_guard(const struct link_map *program, const struct link_map *library,
			      bool (*refused)(const unsigned char *text, size_t size), struct jail_error *err)
{
	const struct {
		const char *name;
		void *function;
	} functions[] = {
		{ "accept4", (void *)accept_new },
		{ "close", (void *)close_file },
		{ "read", (void *)read_message },
		{ "recv", (void *)receive_message },
	};

	refuse = refused;
	void *found = dlsym(RTLD_DEFAULT, "conn_tls_enabled");
	memcpy(&speaks_tls, &found, sizeof(found));
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int missing = library ? jail_imports_replace(library, functions[i].name, functions[i].function, err) : 1;
		if (missing)
			return missing;
	}
	/* It need not close any itself. */
	return jail_imports_replace(program, "close", (void *)close_file, err) < 0 ? -1 : 0;
}
