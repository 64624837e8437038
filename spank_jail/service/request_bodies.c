/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory for requests that slurmrestd and sackd are receiving: few large ones at a time, none above a
 * maximum. service_guard.c calls it.
 *
 * slurmrestd takes requests of 50 MB. It needs ninety times as much memory to parse JSON, before anybody checks the
 * token: two requests by anybody use up its memory. (A job's script has 4 MiB at most.) sackd keeps in memory what
 * has come of a message, which may claim to be of 4 GB.
 */
#define _GNU_SOURCE
#include "request_bodies.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>

#include "native/base/clock.h"

#define MOST_NUMBERS 4096
/* Bytes. slurmrestd has twenty threads: requests below the first need 2 GB together, and as much those above. */
#define SMALL ((size_t)1 << 20)
#define LARGEST ((size_t)6 << 20)
#define MOST_LARGE 3
/* In s. A large request that nothing came of for so long makes room. */
#define LEFT_OPEN_S 60

struct request {
	bool is_open;
	size_t bytes;
	/* What was sent on the connection before it began. */
	uint64_t answered;
	bool is_large;
	int64_t last;
};

static pthread_mutex_t requests_lock = PTHREAD_MUTEX_INITIALIZER;
static struct request requests[MOST_NUMBERS];
static size_t most_bytes;

static uint64_t sent_by(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) ? 0 : info.tcpi_bytes_acked;
}

/* The caller holds the lock. */
static bool find_room(int64_t now)
{
	size_t count = 0;

	for (int fd = 0; fd < MOST_NUMBERS; fd++) {
		if (!requests[fd].is_large)
			continue;
		if (now - requests[fd].last < LEFT_OPEN_S) {
			count++;
		} else {
			(void)shutdown(fd, SHUT_RD);
			requests[fd].is_large = false;
		}
	}
	return count < MOST_LARGE;
}

void jail_bodies_limit(size_t most)
{
	most_bytes = most;
}

static void set(int fd, bool is_open)
{
	if (fd < 0 || fd >= MOST_NUMBERS)
		return;
	pthread_mutex_lock(&requests_lock);
	requests[fd] = (struct request){ .is_open = is_open };
	pthread_mutex_unlock(&requests_lock);
}

void jail_bodies_begin(int fd)
{
	set(fd, true);
}

void jail_bodies_forget(int fd)
{
	set(fd, false);
}

bool jail_bodies_may_grow(int fd, size_t bytes)
{
	if (fd < 0 || fd >= MOST_NUMBERS || !requests[fd].is_open)
		return true;
	struct request *request = &requests[fd];
	uint64_t answered = sent_by(fd);
	bool may = true;

	pthread_mutex_lock(&requests_lock);
	/* An answer has been sent: a new one begins. */
	if (answered != request->answered)
		*request = (struct request){ .is_open = true, .answered = answered };
	request->bytes += bytes;
	request->last = clock_s();
	if (!most_bytes && request->bytes > SMALL && !request->is_large)
		may = request->is_large = find_room(request->last);
	may = may && request->bytes <= (most_bytes ? most_bytes : LARGEST);
	pthread_mutex_unlock(&requests_lock);
	return may;
}
