/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how many of slurmd's threads one client address, and one message, can occupy. guards.c calls it. */
#define _GNU_SOURCE
#include "connections.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/scoped.h"
#include "spank_jail/guards/common/client_addresses.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/large_messages.h"
#include "forwarding.h"

/* Threads that serve one address. Hundreds of sruns may start at once in a job. Up to 23.11 slurmd has 256 for all. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
#define MOST_OF_ONE_ADDRESS 512
#else
#define MOST_OF_ONE_ADDRESS 192
#endif
/* Slurm 25.05 and later read a message before they give it to one of a number of threads. */
#define READS_FIRST (SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0))
/* Bytes of messages of one address; a single one has as many as Slurm takes. sbcast sends 8 MiB at a time. */
#define MOST_BYTES (128UL << 20)
/* In ms. slurmd waits as long for the rest of a message (MessageTimeout). Where half of an address's threads serve, those that
 * have heard nothing are others' to have: who has a message sends it at once. */
#define BEGINS_WITHIN_MS 60000
#define CROWDED_WITHIN_MS 1000
#define CROWDED (MOST_OF_ONE_ADDRESS / 2)
/* How soon it is seen that more of a message is there, in ms; the beginning is in one packet. */
#define REST_LOOK_EVERY_MS 10
/* For other threads to end, where there are no more. */
#define TRY_AGAIN_MS 50
#define MOST_TRIES 600

/* What a thread has of what is bounded. */
struct share {
	struct jail_address *address;
	unsigned nodes;
	size_t message;
};

static int (*receive_message)(int fd, void *from, void *message);
static void *(*create_names)(const char *names);
static void (*unite_names)(void *names), (*destroy_names)(void *names);
static int (*count_names)(void *names);
static pthread_mutex_t addresses_lock = PTHREAD_MUTEX_INITIALIZER;
static struct jail_address addresses[JAIL_ADDRESSES_MOST];
static unsigned nodes_passed_to;
static pthread_key_t key;
static _Thread_local struct share share;

/* When a thread that served a connection ends. */
static void give_back(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&addresses_lock);
	if (share.address) {
		share.address->served--;
		share.address->messages -= share.message;
	}
	nodes_passed_to -= share.nodes;
	share = (struct share){ 0 };
	pthread_mutex_unlock(&addresses_lock);
}

static bool take_thread(int fd)
{
	if (share.address)
		return true;
	pthread_mutex_lock(&addresses_lock);
	struct jail_address *address = jail_addresses_find(addresses, fd);
	bool taken = address->served < MOST_OF_ONE_ADDRESS && !pthread_setspecific(key, &share);
	if (taken) {
		address->served++;
		share.address = address;
	}
	pthread_mutex_unlock(&addresses_lock);
	return taken;
}

static bool take_nodes(unsigned nodes)
{
	pthread_mutex_lock(&addresses_lock);
	bool taken = nodes_passed_to + nodes <= JAIL_FORWARD_MOST;
	if (taken) {
		nodes_passed_to += nodes;
		share.nodes = nodes;
	}
	pthread_mutex_unlock(&addresses_lock);
	return taken;
}

static bool take_bytes(size_t length)
{
	pthread_mutex_lock(&addresses_lock);
	bool taken = !share.address->messages || share.address->messages + length <= MOST_BYTES;
	if (taken) {
		share.address->messages += length;
		share.message += length;
	}
	pthread_mutex_unlock(&addresses_lock);
	return taken;
}

/* slurmd waits for as many answers as the header says, and asks each node once. */
static bool is_true(const struct jail_forward_header *header)
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

static bool is_crowded(void)
{
	pthread_mutex_lock(&addresses_lock);
	bool crowded = share.address->served > CROWDED;
	pthread_mutex_unlock(&addresses_lock);
	return crowded;
}

/* Waits for the beginning of the message, and leaves it to be read. Whether it may be served. */
static bool may_be_served(int fd)
{
	unsigned char text[JAIL_FORWARD_MOST_TEXT + 64];
	const long since = clock_ms();

	while (clock_ms() - since < (is_crowded() ? CROWDED_WITHIN_MS : BEGINS_WITHIN_MS)) {
		struct pollfd ready = { .fd = fd, .events = POLLIN | POLLRDHUP };
		ssize_t got = poll(&ready, 1, CROWDED_WITHIN_MS) > 0 ? recv(fd, text, sizeof(text), MSG_PEEK | MSG_DONTWAIT) : -1;
		const struct jail_forward_header header = jail_forward_read(text, got > 0 ? (size_t)got : 0);
		if (header.kind == JAIL_FORWARD_FEW && (!is_true(&header) || !take_nodes(header.nodes)))
			return false;
		if (header.kind != JAIL_FORWARD_UNFINISHED)
			return header.kind != JAIL_FORWARD_REFUSED && take_bytes(header.length);
		/* No more will come: slurmd finds that, and says so. */
		if (ready.revents & (POLLRDHUP | POLLHUP | POLLERR))
			return true;
		(void)poll(NULL, 0, got > 0 ? REST_LOOK_EVERY_MS : 0);
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

/* Slurm 25.05 and later: a list of nodes that is not in the packet with the beginning of a message is as one that is too long. */
static bool is_refused(const unsigned char *text, size_t size)
{
	const struct jail_forward_header header = jail_forward_read(text, size);

	return header.kind != JAIL_FORWARD_NONE && (header.kind != JAIL_FORWARD_FEW || !is_true(&header));
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
	int missing = !find_functions() ? 1 : READS_FIRST ? jail_large_messages_guard(slurmd, library, is_refused, err)
			: jail_imports_replace(slurmd, "slurm_receive_msg_and_forward", (void *)receive, err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this slurmd receives messages in an unknown way: users can end it by many "
						  "connections, or by a message for many nodes");
}
