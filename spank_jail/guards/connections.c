/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds what one address, and one message, can have of slurmd's threads. guards.c calls it. */
#define _GNU_SOURCE
#include "connections.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <slurm/slurm.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "imports.h"
#include "relays.h"

/* Threads that serve one address. Hundreds of sruns may start at once in a job. Up to 23.11 slurmd has 256 for all. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
#define MOST_OF_ONE 512
#else
#define MOST_OF_ONE 192
#endif
/* Slurm 25.05 and later read a message before they give it to one of a number of threads. */
#define READS_FIRST (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0))
#define MOST_FILES 65536
/* Bytes. Messages below that are many, and no matter. */
#define LARGE (1UL << 20)
/* Addresses at a time; those that come when there are more share one number. */
#define MOST_ADDRESSES 1024
/* Bytes of messages of one address; a single one has as many as Slurm takes. sbcast sends 8 MiB at a time. */
#define MOST_BYTES (128UL << 20)
/* In ms. slurmd waits as long for the rest of a message (MessageTimeout). Where half of an address's threads serve, those that
 * have heard nothing are others' to have: who has a message sends it at once. */
#define BEGINS_WITHIN_MS 60000
#define CROWDED_WITHIN_MS 1000
#define CROWDED (MOST_OF_ONE / 2)
/* How soon it is seen that more of a message is there, in ms; the beginning is in one packet. */
#define LOOK_EVERY_MS 10
/* For other threads to end, where there are no more. */
#define TRY_AGAIN_MS 50
#define MOST_TRIES 600

/* In network order; of IPv6 the half that a network is known by. */
struct address {
	unsigned char bytes[8];
	unsigned served;
	size_t messages; /* bytes */
};

/* What a thread has of what is bounded. */
struct share {
	struct address *address;
	unsigned nodes;
	size_t message;
};

static int (*receive_message)(int fd, void *from, void *message);
static void *(*create_names)(const char *names);
static void (*unite_names)(void *names), (*destroy_names)(void *names);
static int (*count_names)(void *names);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct address addresses[MOST_ADDRESSES];
static unsigned nodes_passed_to;
static pthread_key_t key;
static _Thread_local struct share share;

static void read_address(int fd, unsigned char bytes[8])
{
	struct sockaddr_storage peer = { 0 };
	socklen_t size = sizeof(peer);
	const struct sockaddr_in *in = (const void *)&peer;
	const struct sockaddr_in6 *in6 = (const void *)&peer;

	memset(bytes, 0, 8);
	if (getpeername(fd, (struct sockaddr *)&peer, &size))
		return;
	bytes[0] = 4;
	if (peer.ss_family == AF_INET)
		memcpy(bytes + 4, &in->sin_addr, 4);
	else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		memcpy(bytes + 4, in6->sin6_addr.s6_addr + 12, 4);
	else
		memcpy(bytes, in6->sin6_addr.s6_addr, 8);
	/* Whoever is on this node has all of 127.0.0.0/8. */
	if (bytes[0] == 4 && bytes[4] == 127)
		memset(bytes + 5, 0, 3);
}

/* With the lock held. */
static struct address *find_address(const unsigned char bytes[8])
{
	struct address *unused = &addresses[MOST_ADDRESSES - 1];

	for (size_t i = 0; i < MOST_ADDRESSES; i++) {
		if (addresses[i].served && !memcmp(addresses[i].bytes, bytes, 8))
			return &addresses[i];
		if (!addresses[i].served)
			unused = &addresses[i];
	}
	memcpy(unused->bytes, bytes, 8);
	return unused;
}

/* When a thread that served a connection ends. */
static void give_back(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	if (share.address) {
		share.address->served--;
		share.address->messages -= share.message;
	}
	nodes_passed_to -= share.nodes;
	share = (struct share){ 0 };
	pthread_mutex_unlock(&lock);
}

static bool take_thread(int fd)
{
	unsigned char bytes[8];

	if (share.address)
		return true;
	read_address(fd, bytes);
	pthread_mutex_lock(&lock);
	struct address *address = find_address(bytes);
	bool taken = address->served < MOST_OF_ONE && !pthread_setspecific(key, &share);
	if (taken) {
		address->served++;
		share.address = address;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

static bool take_nodes(unsigned nodes)
{
	pthread_mutex_lock(&lock);
	bool taken = nodes_passed_to + nodes <= JAIL_RELAYS_MOST;
	if (taken) {
		nodes_passed_to += nodes;
		share.nodes = nodes;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

static bool take_bytes(size_t length)
{
	pthread_mutex_lock(&lock);
	bool taken = !share.address->messages || share.address->messages + length <= MOST_BYTES;
	if (taken) {
		share.address->messages += length;
		share.message += length;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

/* slurmd waits for as many answers as the header says, and asks each node once. */
static bool is_true(const struct jail_relay_header *header)
{
	void *names = create_names(header->names);
	int nodes = -1;

	if (names) {
		unite_names(names);
		nodes = count_names(names);
		destroy_names(names);
	}
	return nodes >= 0 && (unsigned)nodes == header->nodes;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000L + now.tv_nsec / 1000000;
}

static bool is_crowded(void)
{
	pthread_mutex_lock(&lock);
	bool crowded = share.address->served > CROWDED;
	pthread_mutex_unlock(&lock);
	return crowded;
}

/* Waits for the beginning of the message, and leaves it to be read. Whether it may be served. */
static bool may_be_served(int fd)
{
	unsigned char text[JAIL_RELAYS_MOST_TEXT + 64];
	const long since = now_ms();

	while (now_ms() - since < (is_crowded() ? CROWDED_WITHIN_MS : BEGINS_WITHIN_MS)) {
		struct pollfd ready = { .fd = fd, .events = POLLIN | POLLRDHUP };
		ssize_t got = poll(&ready, 1, CROWDED_WITHIN_MS) > 0 ? recv(fd, text, sizeof(text), MSG_PEEK | MSG_DONTWAIT) : -1;
		const struct jail_relay_header header = jail_relay_read(text, got > 0 ? (size_t)got : 0);
		if (header.kind == JAIL_RELAY_FEW && (!is_true(&header) || !take_nodes(header.nodes)))
			return false;
		if (header.kind != JAIL_RELAY_UNFINISHED)
			return header.kind != JAIL_RELAY_REFUSED && take_bytes(header.length);
		/* No more will come: slurmd finds that, and says so. */
		if (ready.revents & (POLLRDHUP | POLLHUP | POLLERR))
			return true;
		(void)poll(NULL, 0, got > 0 ? LOOK_EVERY_MS : 0);
	}
	return false;
}

/* For slurmd the message then has ended before it began. */
static void end_connection(int fd)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return;
	(void)dup3(ends[0], fd, O_CLOEXEC);
	close(ends[0]);
	close(ends[1]);
}

/* In place of slurm_receive_msg_and_forward in slurmd, which calls it in a thread for this connection. */
static int receive(int fd, void *from, void *message)
{
	if (!take_thread(fd) || !may_be_served(fd))
		end_connection(fd);
	return receive_message(fd, from, message);
}

/* In place of pthread_create(3) in slurmd and in Slurm's library, which end slurmd when it fails. */
static int create_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	int number = pthread_create(thread, attributes, run, argument);

	for (int i = 0; number == EAGAIN && i < MOST_TRIES; i++) {
		(void)poll(NULL, 0, TRY_AGAIN_MS);
		number = pthread_create(thread, attributes, run, argument);
	}
	return number;
}

/* In place of fork(2) there: a node whose epilog cannot be started is drained. */
static pid_t fork_process(void)
{
	pid_t pid = fork();

	for (int i = 0; pid < 0 && errno == EAGAIN && i < MOST_TRIES; i++) {
		(void)poll(NULL, 0, TRY_AGAIN_MS);
		pid = fork();
	}
	return pid;
}

/* Slurm 25.05 and later: connections that were accepted and of which nothing was read. Numbers above are nobody's. */
static atomic_bool is_new[MOST_FILES];
/* What each has of its address while its message comes, if that is a large one. With the lock held. */
static struct share large[MOST_FILES];
static atomic_bool is_large[MOST_FILES];

static bool take_large(int fd, size_t length)
{
	unsigned char bytes[8];

	if (length <= LARGE)
		return true;
	read_address(fd, bytes);
	pthread_mutex_lock(&lock);
	struct address *address = find_address(bytes);
	bool taken = !address->messages || address->messages + length <= MOST_BYTES;
	if (taken) {
		address->served++;
		address->messages += length;
		large[fd] = (struct share){ .address = address, .message = length };
		is_large[fd] = true;
	}
	pthread_mutex_unlock(&lock);
	return taken;
}

/* In place of close(2) in slurmd and in Slurm's library. */
static int close_file(int fd)
{
	if (fd >= 0 && fd < MOST_FILES && is_large[fd]) {
		pthread_mutex_lock(&lock);
		is_large[fd] = false;
		large[fd].address->served--;
		large[fd].address->messages -= large[fd].message;
		pthread_mutex_unlock(&lock);
	}
	return close(fd);
}

/* In place of accept4(2) in Slurm's library. */
static int accept_new(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
	int fd = accept4(listener, address, size, flags);

	if (fd >= 0 && fd < MOST_FILES)
		is_new[fd] = address && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
	return fd;
}

/* In place of read(2) there. The beginning of a message is in one packet; a list of nodes that is not is as one that is too
 * long. For Slurm the connection then has ended. */
static ssize_t read_message(int fd, void *buffer, size_t size)
{
	ssize_t got = read(fd, buffer, size);

	if (got <= 0 || fd < 0 || fd >= MOST_FILES || !is_new[fd])
		return got;
	is_new[fd] = false;
	const struct jail_relay_header header = jail_relay_read(buffer, (size_t)got);
	if ((header.kind == JAIL_RELAY_NONE || (header.kind == JAIL_RELAY_FEW && is_true(&header))) &&
	    take_large(fd, header.length))
		return got;
	(void)shutdown(fd, SHUT_RDWR);
	return 0;
}

static int guard_reads(const struct link_map *slurmd, const struct link_map *library, struct jail_error *err)
{
	int missing = library ? jail_imports_replace(library, "accept4", (void *)accept_new, err) : 1;

	if (!missing)
		missing = jail_imports_replace(library, "close", (void *)close_file, err);
	/* It need not close any itself. */
	if (!missing && jail_imports_replace(slurmd, "close", (void *)close_file, err) < 0)
		return -1;
	return missing ? missing : jail_imports_replace(library, "read", (void *)read_message, err);
}

static bool find_functions(void)
{
	const struct {
		const char *name;
		void *place;
	} functions[] = {
		{ "slurm_hostlist_create", &create_names },	  { "slurm_hostlist_uniq", &unite_names },
		{ "slurm_hostlist_count", &count_names },	  { "slurm_hostlist_destroy", &destroy_names },
#if !READS_FIRST
		{ "slurm_receive_msg_and_forward", &receive_message },
#endif
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *found = dlsym(RTLD_DEFAULT, functions[i].name);
		if (!found)
			return false;
		memcpy(functions[i].place, &found, sizeof(found));
	}
	return true;
}

int jail_connections_guard(struct jail_error *err)
{
	static bool made;
	const struct link_map *slurmd = jail_imports_program(), *library = jail_imports_library("libslurm");

	if (!slurmd || (library && jail_imports_replace(library, "pthread_create", (void *)create_thread, err) < 0) ||
	    (library && jail_imports_replace(library, "fork", (void *)fork_process, err) < 0) ||
	    jail_imports_replace(slurmd, "pthread_create", (void *)create_thread, err) < 0 ||
	    jail_imports_replace(slurmd, "fork", (void *)fork_process, err) < 0)
		return -1;
	if (!made && pthread_key_create(&key, give_back))
		return jail_fail(err, NULL, 0, "there is no key for what slurmd's threads have: users can end it by many connections");
	made = true;
	int missing = !find_functions() ? 1 : READS_FIRST ? guard_reads(slurmd, library, err)
			: jail_imports_replace(slurmd, "slurm_receive_msg_and_forward", (void *)receive, err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this slurmd receives messages in an unknown way: users can end it by many "
						  "connections, or by a message for many nodes");
}
