/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats signals (pthread_cond_signal) of slurmstepd to its threads that a thread may have
 * missed. guards.c calls it. */
#define _GNU_SOURCE
#include "wakeups.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "spank_jail/guards/common/imported_functions.h"

#define AGAIN_MS 100

/* Of slurmstepd's own data, which nobody frees. Threads may always wake without a reason. */
static _Thread_local pthread_cond_t *signalled;
static const void *program;

static bool is_static(const void *condition)
{
	Dl_info found;

	return dladdr(condition, &found) && found.dli_fbase == program;
}

/* In place of pthread_cond_signal(3) in slurmstepd. */
static int wake(pthread_cond_t *condition)
{
	signalled = is_static(condition) ? condition : NULL;
	return pthread_cond_signal(condition);
}

/* In place of pthread_join(3) in slurmstepd. */
static int wait_for_end(pthread_t thread, void **result)
{
	struct timespec until;
	int number = ETIMEDOUT;

	while (signalled && number == ETIMEDOUT) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += AGAIN_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		number = pthread_timedjoin_np(thread, result, &until);
		if (number == ETIMEDOUT)
			(void)pthread_cond_signal(signalled);
	}
	signalled = NULL;
	return number == ETIMEDOUT ? pthread_join(thread, result) : number;
}

int jail_wakeups_guard(struct jail_error *err)
{
	const struct link_map *stepd = jail_imports_program();
	Dl_info found;

	if (!stepd || !dladdr(stepd->l_ld, &found))
		return 0;
	program = found.dli_fbase;
	/* Slurm 26.05 has a pool of threads, and joins none itself. */
	int missing = jail_imports_replace(stepd, "pthread_join", (void *)wait_for_end, err);
	if (!missing)
		missing = jail_imports_replace(stepd, "pthread_cond_signal", (void *)wake, err);
	return missing < 0 ? -1 : 0;
}
