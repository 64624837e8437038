/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the time in which slurmctld sends a message to an srun or salloc, or an answer to who does not read it. job_submit_jail.c calls it.
 *
 * slurmctld has 256 threads for all messages that it sends, three for each. One to an srun or salloc goes to the host and port that the
 * user named, and its threads wait until the program there has answered, or closed the connection: for MessageTimeout, a minute, where
 * it is stopped. 85 of them, as of `scontrol notify` for a held job, and nobody's job is launched or ended until they are over.
 *
 * The message is in the kernel's hands by then, and arrives without anybody waiting.
 *
 * An answer of some megabytes, as to squeue, has no room there. slurmctld has some 60 threads for requests (24.11), or two for each processor
 * (26.05), and one waits until the answer has been read, for MessageTimeout, with a copy of all of it: a hundred clients that do not read, or four,
 * and nobody else is answered for a minute.
 */
#define _GNU_SOURCE
#include "srun_messages.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "native/base/clock.h"
#include "native/base/text.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/large_messages.h"

/* Nanoseconds for a message, in which a connection may be asked for again that the network lost; and for each while so many others are
 * on their way. An srun takes one within some milliseconds, and the kernel of its host a connection. */
#define LONG_SEND (5 * NS_PER_S)
#define SHORT_SEND (250 * NS_PER_MS)
#define MOST_LONG_SENDS 16
/* Nanoseconds in which a reader has to make room, a third of what the kernel keeps for him, while so many others are waited for: where
 * each request has a thread of its own, some 60 of them, and where some workers do all (26.05), of which each processor has two. */
#define LONG_READ (2 * NS_PER_S)
#define MOST_LONG_READS 16
#define SHORT_READ (250 * NS_PER_MS)
#define PROCESSORS_FOR_A_READ 2

/* Releases differ in what they take and give back, numbers or pointers: all is passed on. */
typedef uintptr_t slurm_function(uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static slurm_function *own_srun_send, *own_ask_srun, *own_srun_connect, *own_srun_send_end, *own_find_node;
static int (*own_wait)(struct pollfd *files, nfds_t n, int ms);
static unsigned (*own_wait_seconds)(unsigned seconds);
static atomic_uint on_their_way, unread_answers;
/* When this thread is to have sent its message, by CLOCK_MONOTONIC; 0: when Slurm says. */
static _Thread_local int64_t sent_until;
/* The message of this thread is for a node: slurmctld has asked for the node's address. */
static _Thread_local bool is_for_node;

/* Calls `own`, as long as it may take. */
static uintptr_t send_bounded(slurm_function *own, uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
	if (is_for_node) {
		is_for_node = false;
		return own(first, second, third, fourth);
	}
	bool is_long = atomic_fetch_add(&on_their_way, 1) < MOST_LONG_SENDS;
	sent_until = clock_ns(CLOCK_MONOTONIC) + (is_long ? LONG_SEND : SHORT_SEND);
	uintptr_t result = own(first, second, third, fourth);
	sent_until = 0;
	atomic_fetch_sub(&on_their_way, 1);
	return result;
}

/* In place of slurm_send_only_node_msg, slurm_send_addr_recv_msgs, slurm_open_msg_conn, slurm_send_msg_maybe and slurm_conf_get_addr of
 * Slurm. */
static uintptr_t send_message(uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
	return send_bounded(own_srun_send, first, second, third, fourth);
}

static uintptr_t ask_srun(uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
	return send_bounded(own_ask_srun, first, second, third, fourth);
}

static uintptr_t open_connection(uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
	return send_bounded(own_srun_connect, first, second, third, fourth);
}

static uintptr_t send_end(uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
	return send_bounded(own_srun_send_end, first, second, third, fourth);
}

static uintptr_t find_node(uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth)
{
	is_for_node = true;
	return own_find_node(first, second, third, fourth);
}

/* poll(2) of one file until `until` by CLOCK_MONOTONIC, if that is before `ms` are over. Slurm asks again what timed out until its own time
 * is over, but for connections, which are waited for in both directions: that this time is over is an error. */
static int wait_for_file(struct pollfd *file, int ms, int64_t until)
{
	int64_t left = (until - clock_ns(CLOCK_MONOTONIC)) / NS_PER_MS;

	left = left < 0 ? 0 : left;
	if (ms >= 0 && ms <= left)
		return own_wait(file, 1, ms);
	int ready = own_wait(file, 1, (int)left);
	if (ready || file->events == (POLLIN | POLLOUT))
		return ready;
	errno = ETIMEDOUT;
	return -1;
}

/* Whether this thread is one of the few by which slurmctld does all. */
static bool is_worker(void)
{
	static _Thread_local char name[16];

	if (!name[0] && prctl(PR_GET_NAME, name))
		return false;
	return text_starts(name, "worker[");
}

/* Of a file that takes nothing now. */
static int wait_for_reader(struct pollfd *file, int ms)
{
	unsigned most = MOST_LONG_READS;
	int64_t longest = LONG_READ;

	if (is_worker()) {
		long processors = sysconf(_SC_NPROCESSORS_ONLN);
		most = processors > PROCESSORS_FOR_A_READ ? (unsigned)processors / PROCESSORS_FOR_A_READ : 1;
		longest = SHORT_READ;
	}
	bool is_bounded = atomic_fetch_add(&unread_answers, 1) >= most;
	int ready = is_bounded ? wait_for_file(file, ms, clock_ns(CLOCK_MONOTONIC) + longest) : own_wait(file, 1, ms);
	int number = errno;
	atomic_fetch_sub(&unread_answers, 1);
	errno = number;
	return ready;
}

/* In place of poll(2) in Slurm's library. */
static int wait_for_files(struct pollfd *files, nfds_t n, int ms)
{
	if (n != 1)
		return own_wait(files, n, ms);
	if (sent_until)
		return wait_for_file(files, ms, sent_until);
	/* What slurmctld sends to nodes and to slurmdbd is none; in a worker no connection is known to be a client's. */
	if (files->events != POLLOUT || (!is_worker() && !jail_large_messages_is_watched(files->fd)))
		return own_wait(files, n, ms);
	int ready = own_wait(files, n, 0);
	return ready || !ms ? ready : wait_for_reader(files, ms);
}

/* In place of sleep(3) there: Slurm tries again, ten times, where nobody listens. */
static unsigned wait_for_seconds(unsigned seconds)
{
	return sent_until ? 0 : own_wait_seconds(seconds);
}

int jail_srun_messages_guard(const struct link_map *slurmctld, const struct link_map *libslurm, struct jail_error *err)
{
	const struct {
		const struct link_map *map;
		const char *name;
		void *function, *own;
		bool needed;
	} functions[] = {
		{ libslurm, "poll", (void *)wait_for_files, &own_wait, true },
		{ libslurm, "sleep", (void *)wait_for_seconds, &own_wait_seconds, false },
		{ slurmctld, "slurm_conf_get_addr", (void *)find_node, &own_find_node, true },
		{ slurmctld, "slurm_send_only_node_msg", (void *)send_message, &own_srun_send, true },
		/* Of an allocation. */
		{ slurmctld, "slurm_send_addr_recv_msgs", (void *)ask_srun, &own_ask_srun, true },
		/* Of the end of a job; releases have the one or the other. */
		{ slurmctld, "slurm_open_msg_conn", (void *)open_connection, &own_srun_connect, false },
		{ slurmctld, "slurm_send_msg_maybe", (void *)send_end, &own_srun_send_end, false },
	};

	for (size_t i = 0; libslurm && i < sizeof(functions) / sizeof(functions[0]); i++) {
		int missing = jail_imports_wrap(functions[i].map, functions[i].name, functions[i].function, functions[i].own, err);
		if (missing < 0 || (missing && functions[i].needed))
			return missing;
	}
	return libslurm ? 0 : 1;
}
