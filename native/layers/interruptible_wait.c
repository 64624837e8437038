/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for another thread, and asks the caller ten times a second whether to stop, such as after Ctrl-C. block.c and
 * thread_pool.c call it. */
#define _GNU_SOURCE
#include "interruptible_wait.h"

#include <time.h>

#define WAIT_NS 100000000
#define SECOND_NS 1000000000

int image_interruptible_wait(const struct image_interrupt *interrupt, pthread_cond_t *changed, pthread_mutex_t *mutex,
			     struct image_error *err)
{
	struct timespec until;
	int result;

	if (!interrupt) {
		pthread_cond_wait(changed, mutex);
		return 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WAIT_NS;
	until.tv_sec += until.tv_nsec / SECOND_NS;
	until.tv_nsec %= SECOND_NS;
	(void)pthread_cond_clockwait(changed, mutex, CLOCK_MONOTONIC, &until);
	/* Also where others wake it again and again. */
	pthread_mutex_unlock(mutex);
	result = interrupt->tell(interrupt->context, err);
	pthread_mutex_lock(mutex);
	return result;
}
