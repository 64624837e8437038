/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the time that slurmctld spends on resolving a host name that a user gave. job_submit_jail.c calls it.
 *
 * srun and salloc tell slurmctld on which host they run, and a user can make that up. slurmctld resolves it when it
 * has something to tell them, with its locks held: Debian's asks ten times, a second apart, for an unknown name.
 * Cancelling one job with six such steps stopped it for a minute. Here threads resolve names, callers wait for a
 * moment, and results are kept.
 */
#define _GNU_SOURCE
#include "host_names.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <resolv.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "native/base/clock.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/own_thread.h"

/* Names that are known, or looked for. */
#define MOST_NAMES 256
/* Of them, those that are looked for at the same time, each by a thread. */
#define MOST_THREADS 16
/* Of DNS, with its end. */
#define LONGEST_NAME 256
/* Nanoseconds that a name's address holds, and that there was none; and that somebody waits for one at most and at least. */
#define KNOWN (60 * NS_PER_S)
#define UNKNOWN (10 * NS_PER_S)
#define MOST_WAIT (500 * NS_PER_MS)
#define LEAST_WAIT (5 * NS_PER_MS)
/* Nanoseconds of waiting that can be saved up; and of the time that goes by, the share of it. */
#define MOST_SAVED NS_PER_S
#define SHARE 10
/* Seconds for an answer of a server of names, and how often it is asked: who waits has gone long before. */
#define ANSWER_S 1
#define TRIES 1

enum state { UNUSED, LOOKED_FOR, NOT_FOUND, FOUND };

struct name {
	char text[LONGEST_NAME];
	struct sockaddr_storage address;
	int64_t until; /* by CLOCK_MONOTONIC: when it is to be looked for again */
	enum state state;
	bool was_found; /* `address` is one, maybe an old one */
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct name names[MOST_NAMES];
	unsigned threads;
	int64_t saved, saved_at;
} known_names = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .saved = MOST_SAVED };

static struct {
	void (*set_address)(void *address, uint16_t port, char *host);
	bool (*is_trusted)(const char *host);
	void (*complain)(void);
} slurm_hosts;

static bool read_numbers(const char *host, struct sockaddr_storage *address)
{
	struct sockaddr_in *in = (void *)address;
	struct sockaddr_in6 *in6 = (void *)address;

	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, host, &in->sin_addr) == 1)
		address->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1)
		address->ss_family = AF_INET6;
	return address->ss_family != AF_UNSPEC;
}

/* IPv4 before IPv6, as Slurm has it unless it is told otherwise. LOOKED_FOR: no answer came. */
static enum state ask(const char *host, struct sockaddr_storage *address)
{
	static const int families[] = { AF_INET, AF_INET6 };
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG }, *answers = NULL;
	bool found = false;

	if (!res_init()) {
		_res.retrans = ANSWER_S;
		_res.retry = TRIES;
	}
	int status = getaddrinfo(host, NULL, &hints, &answers);
	if (status)
		return status == EAI_NONAME ? NOT_FOUND : LOOKED_FOR;
	for (size_t i = 0; !found && i < sizeof(families) / sizeof(families[0]); i++)
		for (const struct addrinfo *one = answers; !found && one; one = one->ai_next)
			if (one->ai_family == families[i] && one->ai_addrlen <= sizeof(*address)) {
				memset(address, 0, sizeof(*address));
				memcpy(address, one->ai_addr, one->ai_addrlen);
				found = true;
			}
	freeaddrinfo(answers);
	return found ? FOUND : NOT_FOUND;
}

/* A thread's; `argument` is an entry, which is nobody else's while it is looked for. */
static void *look_up(void *argument)
{
	struct name *name = argument;
	struct sockaddr_storage address;
	enum state answer = ask(name->text, &address);

	pthread_mutex_lock(&known_names.mutex);
	if (answer == FOUND)
		name->address = address;
	/* An old address is better than none while the server of names does not answer. */
	name->was_found = answer == FOUND || (answer == LOOKED_FOR && name->was_found);
	name->state = name->was_found ? FOUND : NOT_FOUND;
	name->until = clock_ns(CLOCK_MONOTONIC) + (answer == FOUND ? KNOWN : UNKNOWN);
	known_names.threads--;
	pthread_cond_broadcast(&known_names.changed);
	pthread_mutex_unlock(&known_names.mutex);
	return NULL;
}

/* The entry of `host`, or one to have for it: an unused one, else the oldest of names that were never found, else the oldest. */
static struct name *choose(const char *host)
{
	struct name *chosen = NULL;

	for (size_t i = 0; i < MOST_NAMES; i++) {
		struct name *one = &known_names.names[i];

		if (one->state != UNUSED && !strcasecmp(one->text, host))
			return one;
		if (one->state == LOOKED_FOR || (chosen && chosen->state == UNUSED))
			continue;
		if (!chosen || one->state == UNUSED || one->was_found < chosen->was_found ||
		    (one->was_found == chosen->was_found && one->until < chosen->until))
			chosen = one;
	}
	return chosen;
}

static void begin(struct name *name, const char *host)
{
	enum state before = name->state;

	if (known_names.threads >= MOST_THREADS)
		return;
	if (before == UNUSED || strcasecmp(name->text, host))
		name->was_found = false;
	memcpy(name->text, host, strlen(host) + 1);
	name->state = LOOKED_FOR;
	known_names.threads++;
	if (jail_own_thread_start(look_up, name)) {
		known_names.threads--;
		name->state = before == UNUSED ? UNUSED : NOT_FOUND;
		name->until = 0;
	}
}

/* Called with the mutex; waits for the end of a look, as long as all that wait may. */
static void wait_for(const struct name *name, const char *host)
{
	int64_t now = clock_ns(CLOCK_MONOTONIC);

	known_names.saved += (now - known_names.saved_at) / SHARE;
	known_names.saved = known_names.saved > MOST_SAVED ? MOST_SAVED : known_names.saved;
	known_names.saved_at = now;
	int64_t wait = known_names.saved < LEAST_WAIT ? LEAST_WAIT
		       : known_names.saved > MOST_WAIT ? MOST_WAIT : known_names.saved;
	int64_t end = clock_ns(CLOCK_REALTIME) + wait;
	struct timespec until = { .tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S };

	while (name->state == LOOKED_FOR && !strcasecmp(name->text, host))
		if (pthread_cond_timedwait(&known_names.changed, &known_names.mutex, &until))
			break;
	known_names.saved -= clock_ns(CLOCK_MONOTONIC) - now;
	known_names.saved = known_names.saved < 0 ? 0 : known_names.saved;
}

bool jail_host_names_find(const char *host, struct sockaddr_storage *address)
{
	bool found = false;

	if (read_numbers(host, address))
		return true;
	if (!host[0] || strlen(host) >= LONGEST_NAME)
		return false;
	pthread_mutex_lock(&known_names.mutex);
	struct name *name = choose(host);
	if (name) {
		bool is_it = name->state != UNUSED && !strcasecmp(name->text, host);

		if (name->state != LOOKED_FOR && (!is_it || name->until < clock_ns(CLOCK_MONOTONIC)))
			begin(name, host);
		if (name->state == LOOKED_FOR)
			wait_for(name, host);
		found = name->was_found && !strcasecmp(name->text, host);
		if (found)
			*address = name->address;
	}
	pthread_mutex_unlock(&known_names.mutex);
	return found;
}

/* In place of Slurm's slurm_set_addr(). */
static void set_address(void *address, uint16_t port, char *host)
{
	struct sockaddr_storage found;

	if (!host || slurm_hosts.is_trusted(host)) {
		slurm_hosts.set_address(address, port, host);
		return;
	}
	if (!jail_host_names_find(host, &found)) {
		slurm_hosts.complain();
		memset(&found, 0, sizeof(found)); /* AF_UNSPEC, as Slurm has it then */
	} else if (found.ss_family == AF_INET) {
		((struct sockaddr_in *)&found)->sin_port = htons(port);
	} else {
		((struct sockaddr_in6 *)&found)->sin6_port = htons(port);
	}
	memcpy(address, &found, sizeof(found));
}

int jail_host_names_guard(const struct link_map *slurmctld, bool (*is_trusted)(const char *host), void (*complain)(void),
			  struct jail_error *err)
{
	slurm_hosts.is_trusted = is_trusted;
	slurm_hosts.complain = complain;
	return jail_imports_wrap(slurmctld, "slurm_set_addr", (void *)set_address, &slurm_hosts.set_address, err);
}
