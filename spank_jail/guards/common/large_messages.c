/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory for messages that slurmd, slurmctld and slurmdbd are still receiving. connections.c,
 * job_submit_jail.c and service_guard.c call it.
 *
 * Slurm allocates a message by the length sent before it, up to a gigabyte, and checks the sender's credential when
 * all of it is there.
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

#include "client_addresses.h"
#include "imported_functions.h"

/* Numbers above are nobody's. */
#define MOST_FILES 65536
/* Bytes. Messages below that are many, and no matter. */
#define LARGE (1UL << 20)
/* What Slurm takes. Of HTTP, which slurmctld of 25.11 and later speaks, too, the first four bytes are a larger number. */
#define LARGEST (1UL << 30)
/* Bytes of a connection of HTTP, whose requests here have no body: Slurm takes one of 50 MB all the same, before it knows whether it is
 * for anything. */
#define SMALL_HTTP (64UL << 10)
#define LARGEST_HTTP (52UL << 20)
/* By Slurm's header, which begins with its version and these flags. By this one slurmctld says to itself that it
 * has locked what the message is about: it must not come from others. */
#define FLAGS_AT 2
#define QUEUE_PROCESSING 0x20
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
/* The daemon's messages have Slurm's header: all of slurmctld and slurmd, not those of slurmdbd. */
static bool has_headers;
/* A thread that reads by the length is at the header. */
static atomic_bool is_at_header[MOST_FILES];
static atomic_bool is_http[MOST_FILES];
static atomic_size_t of_http[MOST_FILES];
/* Of the message that a thread reads by its length, what it has not read; a connection to slurmdbd brings one after the other. */
static atomic_size_t left[MOST_FILES];

/* The caller holds the lock. */
static void give_back(int fd)
{
	if (!is_large[fd])
		return;
	shares[fd].address->served--;
	shares[fd].address->messages -= shares[fd].bytes;
	together -= shares[fd].bytes;
	is_large[fd] = false;
}

static bool reserve(int fd, size_t bytes)
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

bool jail_large_messages_is_watched(int fd)
{
	return fd >= 0 && fd < MOST_FILES && is_accepted[fd];
}

/* For Slurm the connection then has ended. */
static ssize_t end(int fd)
{
	(void)shutdown(fd, SHUT_RDWR);
	return 0;
}

int jail_large_messages_close(int fd)
{
	if (jail_large_messages_is_watched(fd)) {
		pthread_mutex_lock(&lock);
		is_accepted[fd] = false;
		give_back(fd);
		pthread_mutex_unlock(&lock);
	}
	return close(fd);
}

int jail_large_messages_accept4(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
	int fd = accept4(listener, address, size, flags);

	if (fd >= 0 && fd < MOST_FILES && address && (address->sa_family == AF_INET || address->sa_family == AF_INET6)) {
		is_new[fd] = true;
		is_by_length[fd] = is_large[fd] = false;
		is_at_header[fd] = is_http[fd] = false;
		left[fd] = of_http[fd] = 0;
		is_accepted[fd] = true;
	}
	return fd;
}

static bool (*speaks_tls)(void);

/* Takes from a header what is slurmctld's own to say; false when it is not all there, as it is of every client of Slurm's. */
static bool clear_flags(unsigned char *header, size_t size)
{
	if (size < FLAGS_AT + 2)
		return false;
	header[FLAGS_AT + 1] &= (unsigned char)~QUEUE_PROCESSING;
	return true;
}

/* Whether Slurm may have what was read of a new connection: a message's length comes first, in one packet with its header. */
static bool may_begin(int fd, unsigned char *text, size_t size)
{
	uint32_t length = 0;

	if (speaks_tls && speaks_tls())
		return true;
	if (size < sizeof(length) || (refuse && refuse(text, size)))
		return false;
	memcpy(&length, text, sizeof(length));
	if (ntohl(length) > LARGEST) {
		is_http[fd] = true;
		return true;
	}
	return clear_flags(text + sizeof(length), size - sizeof(length)) && reserve(fd, ntohl(length));
}

/* Before `size` bytes are read, for which there is room that is not yet used. */
static bool may_read(int fd, size_t size)
{
	if (!jail_large_messages_is_watched(fd))
		return true;
	if (is_new[fd] && size == sizeof(uint32_t)) {
		is_by_length[fd] = true;
		is_new[fd] = false;
	}
	if (is_by_length[fd] && !left[fd]) {
		pthread_mutex_lock(&lock);
		give_back(fd);
		pthread_mutex_unlock(&lock);
		/* The length itself is none of it. */
		left[fd] = size == sizeof(uint32_t) ? 0 : size;
		is_at_header[fd] = has_headers && left[fd];
	}
	return !is_by_length[fd] || reserve(fd, size);
}

static ssize_t judge(int fd, unsigned char *text, ssize_t got)
{
	if (got <= 0 || !jail_large_messages_is_watched(fd))
		return got;
	if (left[fd])
		left[fd] -= (size_t)got < left[fd] ? (size_t)got : left[fd];
	if (is_at_header[fd]) {
		is_at_header[fd] = false;
		return clear_flags(text, (size_t)got) ? got : end(fd);
	}
	bool is_first = is_new[fd];
	is_new[fd] = false;
	if (is_first && !may_begin(fd, text, (size_t)got))
		return end(fd);
	of_http[fd] += is_http[fd] ? (size_t)got : 0;
	return of_http[fd] <= SMALL_HTTP || reserve(fd, LARGEST_HTTP) ? got : end(fd);
}

ssize_t jail_large_messages_read(int fd, void *buffer, size_t size)
{
	return may_read(fd, size) ? judge(fd, buffer, read(fd, buffer, size)) : end(fd);
}

ssize_t jail_large_messages_recv(int fd, void *buffer, size_t size, int flags)
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
		{ "accept4", (void *)jail_large_messages_accept4 },
		{ "close", (void *)jail_large_messages_close },
		{ "read", (void *)jail_large_messages_read },
		{ "recv", (void *)jail_large_messages_recv },
	};

	refuse = refused;
	has_headers = true;
	void *found = dlsym(RTLD_DEFAULT, "conn_tls_enabled");
	memcpy(&speaks_tls, &found, sizeof(found));
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int missing = library ? jail_imports_replace(library, functions[i].name, functions[i].function, err) : 1;
		if (missing)
			return missing;
	}
	/* It need not close any itself. */
	return jail_imports_replace(program, "close", (void *)jail_large_messages_close, err) < 0 ? -1 : 0;
}
