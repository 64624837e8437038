/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads that runs jobs in the order in which they came; the first error stops the rest. */
#ifndef IMAGE_THREAD_POOL_H
#define IMAGE_THREAD_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "interruptible_wait.h"

/* At the beginning of a structure of the job's own. */
struct image_job {
	/* Runs on a thread with the state that `thread_pool_new` gave it; frees the job in any case. With `stopped`
	 * it only gives back what it holds. 0, or -1: then no other job runs. */
	int (*run)(struct image_job *job, void *state, bool stopped, struct image_error *err);
	struct image_job *next;
};

struct thread_pool;

/* `threads` of them, each with `state_size` bytes of zeros of its own; `end` is run on these at the end. */
struct thread_pool *thread_pool_new(unsigned threads, size_t state_size, void (*begin)(void *state, void *context),
				    void (*end)(void *state), void *context, struct image_error *err);

/* Who puts jobs and waits for them asks by `interrupt` whether to go on; where not, no other job runs. */
void thread_pool_ask(struct thread_pool *work, const struct image_interrupt *interrupt);

/* For a job that takes long: whether it is to end without its result, for another has failed or all is given up. */
const atomic_bool *thread_pool_stopped(const struct thread_pool *work);

/* Takes the job over, also on failure; waits while many wait. -1: a job has failed. */
int thread_pool_put(struct thread_pool *work, struct image_job *job, struct image_error *err);

/* Waits until all jobs have run. -1: one has failed. */
int thread_pool_drain(struct thread_pool *work, struct image_error *err);

/* Whether a job has failed, and with what. */
bool thread_pool_has_failed(struct thread_pool *work, struct image_error *err);

/* Jobs that have not begun do not run. */
void thread_pool_free(struct thread_pool *work);

#endif
