/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps memory for decompressed layers in blocks of one bounded pool, and passes the blocks between threads.
 * stream.c, native/directory, native/volume and enroot/importing call it. */
#define _GNU_SOURCE
#include "block.h"

#include <stdlib.h>

#include "scoped.h"

void image_pool_init(struct image_pool *pool, size_t limit, size_t block_size)
{
	*pool = (struct image_pool){ .limit = limit, .block_size = block_size };
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->returned, NULL);
}

void image_pool_destroy(struct image_pool *pool)
{
	for (struct image_block *block = pool->free, *next; block; block = next) {
		next = block->next;
		free(block->data);
		free(block);
	}
	pthread_cond_destroy(&pool->returned);
	pthread_mutex_destroy(&pool->mutex);
}

void image_pool_stop(struct image_pool *pool)
{
	scoped_lock(&pool->mutex);

	pool->stopped = true;
	pthread_cond_broadcast(&pool->returned);
}

static struct image_block *make_block(struct image_pool *pool)
{
	struct image_block *block = calloc(1, sizeof(*block));

	if (!block)
		return NULL;
	block->data = malloc(pool->block_size);
	if (!block->data) {
		free(block);
		return NULL;
	}
	block->pool = pool;
	return block;
}

struct image_block *image_block_take(struct image_pool *pool)
{
	struct image_error ignored;

	return image_block_await(pool, NULL, &ignored);
}

struct image_block *image_block_await(struct image_pool *pool, const struct image_interrupt *interrupt, struct image_error *err)
{
	struct image_block *block;
	scoped_lock(&pool->mutex);

	while (!pool->free && pool->made == pool->limit && !pool->stopped)
		if (image_interruptible_wait(interrupt, &pool->returned, &pool->mutex, err))
			return NULL;
	if (pool->stopped) {
		image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
		return NULL;
	}
	block = pool->free;
	if (block) {
		pool->free = block->next;
	} else {
		block = make_block(pool);
		if (!block) {
			image_fail_memory(err);
			return NULL;
		}
		pool->made++;
	}
	block->length = 0;
	atomic_store(&block->references, 1);
	return block;
}

struct image_block *image_block_hold(struct image_block *block)
{
	atomic_fetch_add_explicit(&block->references, 1, memory_order_relaxed);
	return block;
}

void image_block_release(struct image_block *block)
{
	struct image_pool *pool;

	if (!block || atomic_fetch_sub_explicit(&block->references, 1, memory_order_acq_rel) > 1)
		return;
	pool = block->pool;
	scoped_lock(&pool->mutex);
	block->next = pool->free;
	pool->free = block;
	pthread_cond_signal(&pool->returned);
}

void image_queue_init(struct image_queue *queue)
{
	*queue = (struct image_queue){ .count = 0 };
	pthread_mutex_init(&queue->mutex, NULL);
	pthread_cond_init(&queue->changed, NULL);
}

void image_queue_destroy(struct image_queue *queue)
{
	for (; queue->count; queue->count--, queue->head = (queue->head + 1) % IMAGE_QUEUE_ROOM)
		image_block_release(queue->blocks[queue->head]);
	pthread_cond_destroy(&queue->changed);
	pthread_mutex_destroy(&queue->mutex);
}

bool image_queue_put(struct image_queue *queue, struct image_block *block)
{
	bool stopped;

	{
		scoped_lock(&queue->mutex);
		while (queue->count == IMAGE_QUEUE_ROOM && !queue->stopped)
			pthread_cond_wait(&queue->changed, &queue->mutex);
		stopped = queue->stopped;
		if (!stopped) {
			queue->blocks[(queue->head + queue->count++) % IMAGE_QUEUE_ROOM] = block;
			pthread_cond_broadcast(&queue->changed);
		}
	}
	if (stopped)
		image_block_release(block);
	return !stopped;
}

struct image_block *image_queue_take(struct image_queue *queue)
{
	struct image_error ignored;
	struct image_block *block;

	return image_queue_await(queue, NULL, &block, &ignored) > 0 ? block : NULL;
}

int image_queue_await(struct image_queue *queue, const struct image_interrupt *interrupt, struct image_block **block,
		      struct image_error *err)
{
	scoped_lock(&queue->mutex);

	*block = NULL;
	while (!queue->count && !queue->ended && !queue->stopped)
		if (image_interruptible_wait(interrupt, &queue->changed, &queue->mutex, err))
			return -1;
	if (queue->stopped || !queue->count)
		return 0;
	*block = queue->blocks[queue->head];
	queue->head = (queue->head + 1) % IMAGE_QUEUE_ROOM;
	queue->count--;
	pthread_cond_broadcast(&queue->changed);
	return 1;
}

void image_queue_end(struct image_queue *queue)
{
	scoped_lock(&queue->mutex);

	queue->ended = true;
	pthread_cond_broadcast(&queue->changed);
}

void image_queue_stop(struct image_queue *queue)
{
	scoped_lock(&queue->mutex);

	queue->stopped = true;
	pthread_cond_broadcast(&queue->changed);
}
