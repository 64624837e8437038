/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of memory for decompressed layers, from a bounded pool, and queues that pass them between threads.
 *
 * The pool is the only bound of memory: a thread that wants a block waits until one is given back. So a thread that
 * holds a block must never wait for another.
 */
#ifndef IMAGE_BLOCK_H
#define IMAGE_BLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "interruptible_wait.h"

/* A multiple of the tar's 512, so that no header lies across two blocks. */
#define IMAGE_BLOCK_SIZE ((size_t)1 << 20)

struct image_pool;

struct image_block {
	unsigned char *data;
	size_t length;
	atomic_uint references;
	struct image_pool *pool;
	struct image_block *next;
};

struct image_pool {
	pthread_mutex_t mutex;
	pthread_cond_t returned;
	struct image_block *free, *all;
	size_t made, limit, block_size;
	bool stopped;
};

void image_pool_init(struct image_pool *pool, size_t limit, size_t block_size);

/* Every block must have been given back. */
void image_pool_destroy(struct image_pool *pool);

/* Wakes all who wait; from then on image_block_take gives NULL. */
void image_pool_stop(struct image_pool *pool);

/* A block with one reference, length 0. NULL: stopped, or no memory. */
struct image_block *image_block_take(struct image_pool *pool);
/* The same for the thread that may ask whether to go on (NULL: it cannot). NULL also then, with `err`. */
struct image_block *image_block_await(struct image_pool *pool, const struct image_interrupt *interrupt, struct image_error *err);
struct image_block *image_block_hold(struct image_block *block);
void image_block_release(struct image_block *block);

#define IMAGE_QUEUE_ROOM 8

/* First in, first out. Each block in it is a reference that its taker owns. */
struct image_queue {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	struct image_block *blocks[IMAGE_QUEUE_ROOM];
	unsigned head, count;
	bool ended, stopped;
};

void image_queue_init(struct image_queue *queue);
void image_queue_destroy(struct image_queue *queue);

/* Takes over the reference, also on failure; false: the queue was stopped. */
bool image_queue_put(struct image_queue *queue, struct image_block *block);

/* NULL: ended and empty, or stopped. */
struct image_block *image_queue_take(struct image_queue *queue);
/* The same for the thread that may ask whether to go on (NULL: it cannot). 1; 0: as NULL there; -1: do not go on. */
int image_queue_await(struct image_queue *queue, const struct image_interrupt *interrupt, struct image_block **block,
		      struct image_error *err);
void image_queue_end(struct image_queue *queue);
void image_queue_stop(struct image_queue *queue);

#endif
