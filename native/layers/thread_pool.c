/* SPDX-License-Identifier: Apache-2.0 */
/* Runs jobs on a pool of threads, in the order in which they came. native/directory and native/squashfs call it. */
#define _GNU_SOURCE
#include "thread_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "scoped.h"

struct worker {
	struct thread_pool *work;
	pthread_t thread;
	void *state;
};

struct thread_pool {
	pthread_mutex_t mutex;
	pthread_cond_t put, taken;
	struct image_job *first, **last;
	size_t waiting, running, most;
	bool ending, failed;
	atomic_bool stopped; /* one of both, to be asked without the lock */
	const struct image_interrupt *interrupt;
	struct image_error error;
	void (*begin)(void *state, void *context);
	void (*end)(void *state);
	void *context;
	unsigned n_workers;
	struct worker workers[];
};

/* With the lock held. */
static int give_up(struct thread_pool *work, const struct image_error *err)
{
	if (!work->failed)
		work->error = *err;
	work->failed = true;
	atomic_store(&work->stopped, true);
	return -1;
}

static void *run_jobs(void *argument)
{
	struct worker *worker = argument;
	struct thread_pool *work = worker->work;
	struct image_error err;

	if (work->begin)
		work->begin(worker->state, work->context);
	pthread_mutex_lock(&work->mutex);
	for (;;) {
		struct image_job *job;
		bool stopped;
		int result;

		while (!work->first && !work->ending)
			pthread_cond_wait(&work->put, &work->mutex);
		job = work->first;
		if (!job)
			break;
		work->first = job->next;
		if (!work->first)
			work->last = &work->first;
		work->waiting--;
		work->running++;
		stopped = work->failed;
		pthread_mutex_unlock(&work->mutex);
		result = job->run(job, worker->state, stopped, &err);
		pthread_mutex_lock(&work->mutex);
		work->running--;
		if (result)
			give_up(work, &err);
		pthread_cond_broadcast(&work->taken);
	}
	pthread_mutex_unlock(&work->mutex);
	if (work->end)
		work->end(worker->state);
	return NULL;
}

struct thread_pool *thread_pool_new(unsigned threads, size_t state_size, void (*begin)(void *state, void *context),
				    void (*end)(void *state), void *context, struct image_error *err)
{
	struct thread_pool *work = calloc(1, sizeof(*work) + threads * sizeof(work->workers[0]));

	if (!work) {
		image_fail_memory(err);
		return NULL;
	}
	pthread_mutex_init(&work->mutex, NULL);
	pthread_cond_init(&work->put, NULL);
	pthread_cond_init(&work->taken, NULL);
	work->last = &work->first;
	work->most = 2 * (size_t)threads + 2;
	work->begin = begin;
	work->end = end;
	work->context = context;
	for (unsigned i = 0; i < threads; i++) {
		struct worker *worker = &work->workers[i];

		worker->work = work;
		worker->state = calloc(1, state_size);
		if (!worker->state || pthread_create(&worker->thread, NULL, run_jobs, worker)) {
			free(worker->state);
			image_fail_call(err, "", "pthread_create", EAGAIN);
			thread_pool_free(work);
			return NULL;
		}
		work->n_workers++;
	}
	return work;
}

int thread_pool_put(struct thread_pool *work, struct image_job *job, struct image_error *err)
{
	scoped_lock(&work->mutex);

	while (work->waiting >= work->most && !work->failed)
		if (image_interruptible_wait(work->interrupt, &work->taken, &work->mutex, err))
			give_up(work, err);
	job->next = NULL;
	*work->last = job;
	work->last = &job->next;
	work->waiting++;
	pthread_cond_signal(&work->put);
	if (work->failed)
		*err = work->error;
	return work->failed ? -1 : 0;
}

int thread_pool_drain(struct thread_pool *work, struct image_error *err)
{
	scoped_lock(&work->mutex);

	/* What is given up is not waited for: jobs that run may take long. */
	while (work->waiting || work->running)
		if (image_interruptible_wait(work->interrupt, &work->taken, &work->mutex, err))
			return give_up(work, err);
	if (work->failed)
		*err = work->error;
	return work->failed ? -1 : 0;
}

void thread_pool_ask(struct thread_pool *work, const struct image_interrupt *interrupt)
{
	work->interrupt = interrupt;
}

const atomic_bool *thread_pool_stopped(const struct thread_pool *work)
{
	return &work->stopped;
}

bool thread_pool_has_failed(struct thread_pool *work, struct image_error *err)
{
	scoped_lock(&work->mutex);

	if (work->failed)
		*err = work->error;
	return work->failed;
}

void thread_pool_free(struct thread_pool *work)
{
	if (!work)
		return;
	{
		scoped_lock(&work->mutex);
		work->ending = work->failed = true;
		atomic_store(&work->stopped, true);
		pthread_cond_broadcast(&work->put);
	}
	for (unsigned i = 0; i < work->n_workers; i++) {
		pthread_join(work->workers[i].thread, NULL);
		free(work->workers[i].state);
	}
	pthread_cond_destroy(&work->put);
	pthread_cond_destroy(&work->taken);
	pthread_mutex_destroy(&work->mutex);
	free(work);
}
