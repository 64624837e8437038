/* SPDX-License-Identifier: Apache-2.0 */
/* Ignores the second unlock of a lock that a thread of slurmctld locked once. job_submit_jail.c calls it.
 *
 * slurmctld (24.05 and later) unlocks twice when a user asks for a credential for sbcast for a step that does not
 * exist (`sbcast --jobid=JOB.77`). The lock's count of readers is then below 0, and no thread gets that lock any
 * more.
 */
#define _GNU_SOURCE
#include "double_unlock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "spank_jail/guards/common/imported_functions.h"

/* Locks of one thread at a time: slurmctld has five, and takes them in one order. */
#define MOST 16

struct held {
	pthread_rwlock_t *lock;
	unsigned times;
};

static _Thread_local struct held held[MOST];
/* Has, or had, more than are noted. */
static _Thread_local bool is_unknown;
/* May hold some since before the guard. */
static pthread_t first_thread;
/* The C library's. */
static int (*own_rdlock)(pthread_rwlock_t *), (*own_wrlock)(pthread_rwlock_t *), (*own_tryrdlock)(pthread_rwlock_t *),
	(*own_trywrlock)(pthread_rwlock_t *), (*own_unlock)(pthread_rwlock_t *);

static struct held *find(const pthread_rwlock_t *lock)
{
	for (int i = 0; i < MOST; i++)
		if (held[i].times && held[i].lock == lock)
			return &held[i];
	return NULL;
}

static int note(pthread_rwlock_t *lock, int number)
{
	struct held *entry = number ? NULL : find(lock);

	for (int i = 0; !number && !entry && i < MOST; i++)
		if (!held[i].times)
			entry = &held[i];
	if (entry) {
		entry->lock = lock;
		entry->times++;
	}
	is_unknown = is_unknown || (!number && !entry);
	return number;
}

/* In place of the functions of pthread.h in slurmctld. */
static int read_lock(pthread_rwlock_t *lock)
{
	return note(lock, own_rdlock(lock));
}

static int write_lock(pthread_rwlock_t *lock)
{
	return note(lock, own_wrlock(lock));
}

static int try_read_lock(pthread_rwlock_t *lock)
{
	return note(lock, own_tryrdlock(lock));
}

static int try_write_lock(pthread_rwlock_t *lock)
{
	return note(lock, own_trywrlock(lock));
}

static int unlock(pthread_rwlock_t *lock)
{
	struct held *entry = find(lock);

	if (entry)
		entry->times--;
	else if (!is_unknown && !pthread_equal(pthread_self(), first_thread))
		return 0;
	return own_unlock(lock);
}

int jail_double_unlock_guard(const struct link_map *program, struct jail_error *err)
{
	const struct {
		const char *name;
		void *function, *own;
	} functions[] = {
		{ "pthread_rwlock_rdlock", (void *)read_lock, &own_rdlock },
		{ "pthread_rwlock_wrlock", (void *)write_lock, &own_wrlock },
		{ "pthread_rwlock_tryrdlock", (void *)try_read_lock, &own_tryrdlock },
		{ "pthread_rwlock_trywrlock", (void *)try_write_lock, &own_trywrlock },
		{ "pthread_rwlock_unlock", (void *)unlock, &own_unlock },
	};
	const size_t count = sizeof(functions) / sizeof(functions[0]);

	first_thread = pthread_self();
	for (size_t i = 0; i < count; i++) {
		void *found = dlsym(RTLD_DEFAULT, functions[i].name);
		if (!found)
			return 1;
		memcpy(functions[i].own, &found, sizeof(found));
	}
	/* Unlocking last: what is locked meanwhile is noted. */
	for (size_t i = 0; i < count; i++) {
		int missing = jail_imports_replace(program, functions[i].name, functions[i].function, err);
		if (missing < 0 || (missing && i == count - 1))
			return missing;
	}
	return 0;
}
