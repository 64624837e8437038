/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the content of files into a squashfs image, as blocks that several threads compress. Files of this folder
 * call it. */
#define _GNU_SOURCE
#include "data.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/layers/scoped.h"
#include "native/layers/write_at.h"

/* Blocks under way: some for each thread, so that none waits for the slowest; no more than so many bytes. */
#define BLOCKS_A_THREAD 6
#define BYTES_MOST ((size_t)48 << 20)
#define CHUNK 65536u
#define CHUNKS 1024u /* 8 TiB of content in blocks of 128 KiB */

struct squashfs_data {
	struct squashfs_data_request request;
	struct thread_pool *work;
	pthread_mutex_t mutex;
	pthread_cond_t returned;
	struct squashfs_block *all, *free, **done; /* done: by sequence, those that wait for earlier ones */
	size_t n_blocks;
	uint64_t entries, runs, sequence; /* numbers given */
	uint64_t written, offset;         /* blocks that have a place */
	uint32_t *sizes[CHUNKS];
	uint64_t *starts[CHUNKS];
	bool stopped;
};

struct worker_state {
	struct squashfs_compressor compressor;
	struct squashfs_data *data;
	struct image_error err;
	bool ready;
};

static void worker_state_begin(void *state, void *context)
{
	struct worker_state *worker = state;
	struct squashfs_data *data = context;

	worker->data = data;
	worker->ready = !squashfs_compressor_begin(&worker->compressor, data->request.compression, data->request.level,
						   &worker->err);
}

static void worker_state_end(void *state)
{
	struct worker_state *worker = state;

	squashfs_compressor_end(&worker->compressor);
}

struct squashfs_data *squashfs_data_new(const struct squashfs_data_request *request, struct image_error *err)
{
	struct squashfs_data *data = calloc(1, sizeof(*data));
	size_t bound = squashfs_compressor_bound(request->compression, request->block_size);
	size_t most = BYTES_MOST / (request->block_size + bound);

	if (!data) {
		image_fail_memory(err);
		return NULL;
	}
	data->request = *request;
	data->offset = request->offset;
	pthread_mutex_init(&data->mutex, NULL);
	pthread_cond_init(&data->returned, NULL);
	data->n_blocks = 4 + BLOCKS_A_THREAD * (size_t)request->jobs;
	/* At least one for each thread and two that are filled. */
	if (data->n_blocks > most)
		data->n_blocks = most > request->jobs + 2 ? most : request->jobs + 2;
	data->done = calloc(data->n_blocks, sizeof(struct squashfs_block *));
	data->all = calloc(data->n_blocks, sizeof(struct squashfs_block));
	for (size_t i = 0; data->done && data->all && i < data->n_blocks; i++) {
		struct squashfs_block *block = &data->all[i];

		*block = (struct squashfs_block){ .data = data, .bytes = malloc(request->block_size),
						  .compressed = malloc(bound), .next = data->free };
		if (!block->bytes || !block->compressed) {
			image_fail_memory(err);
			squashfs_data_free(data);
			return NULL;
		}
		data->free = block;
	}
	if (!data->done || !data->all)
		image_fail_memory(err);
	else
		data->work = thread_pool_new(request->jobs, sizeof(struct worker_state), worker_state_begin, worker_state_end,
					     data, err);
	if (data->work)
		return data;
	squashfs_data_free(data);
	return NULL;
}

void squashfs_data_free(struct squashfs_data *data)
{
	if (!data)
		return;
	thread_pool_free(data->work);
	for (size_t i = 0; data->all && i < data->n_blocks; i++) {
		free(data->all[i].bytes);
		free(data->all[i].compressed);
	}
	free(data->all);
	free(data->done);
	pthread_cond_destroy(&data->returned);
	pthread_mutex_destroy(&data->mutex);
	free(data);
}

struct squashfs_block *squashfs_block_take(struct squashfs_data *data, struct image_error *err)
{
	struct squashfs_block *block = NULL;

	{
		scoped_lock(&data->mutex);
		while (!data->free && !data->stopped)
			pthread_cond_wait(&data->returned, &data->mutex);
		if (!data->stopped) {
			block = data->free;
			data->free = block->next;
		}
	}
	if (!block) {
		/* The failing job has left its error, or is about to. */
		if (!thread_pool_drain(data->work, err))
			image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
		return NULL;
	}
	block->length = 0;
	block->plain = false;
	block->run = SQUASHFS_ABSENT;
	return block;
}

static void give_back(struct squashfs_block *block)
{
	block->next = block->data->free;
	block->data->free = block;
	pthread_cond_signal(&block->data->returned);
}

void squashfs_block_drop(struct squashfs_block *block)
{
	if (!block)
		return;
	scoped_lock(&block->data->mutex);
	give_back(block);
}

static void *chunk_of(struct squashfs_data *data, void **chunks, uint64_t at, size_t size, struct image_error *err)
{
	void **chunk = at / CHUNK < CHUNKS ? &chunks[at / CHUNK] : NULL;

	if (!chunk) {
		image_fail(err, IMAGE_FAULT_SOURCE, "", "the image has more than %u blocks of content: take larger ones "
			   "(-b 1M)", CHUNK * CHUNKS);
		return NULL;
	}
	if (!*chunk && !(*chunk = image_spill_take(data->request.spill, CHUNK * size)))
		image_fail_memory(err);
	return *chunk;
}

static int new_entry(struct squashfs_data *data, struct image_error *err)
{
	if (!chunk_of(data, (void **)data->sizes, data->entries, sizeof(uint32_t), err))
		return -1;
	data->entries++;
	return 0;
}

/* Gives places to all blocks whose predecessors have one, and returns them in a list. */
static struct squashfs_block *place_all(struct squashfs_data *data, struct squashfs_block *block)
{
	struct squashfs_block *list = NULL, **last = &list;
	scoped_lock(&data->mutex);

	data->done[block->sequence % data->n_blocks] = block;
	while ((block = data->done[data->written % data->n_blocks]) && block->sequence == data->written) {
		data->done[data->written++ % data->n_blocks] = NULL;
		data->sizes[block->entry / CHUNK][block->entry % CHUNK] = block->size;
		if (block->run != SQUASHFS_ABSENT)
			data->starts[block->run / CHUNK][block->run % CHUNK] = data->offset;
		block->entry = data->offset; /* from here on: where it goes */
		data->offset += block->size & (SQUASHFS_BLOCK_PLAIN - 1);
		*last = block;
		last = &block->next;
		block->next = NULL;
	}
	return list;
}

static int stop(struct squashfs_data *data)
{
	scoped_lock(&data->mutex);

	data->stopped = true;
	pthread_cond_broadcast(&data->returned);
	return -1;
}

static int run(struct image_job *job, void *state, bool stopped, struct image_error *err)
{
	struct squashfs_block *block = (struct squashfs_block *)job;
	struct squashfs_data *data = block->data;
	struct worker_state *worker = state;
	size_t length = 0;

	if (stopped)
		return 0;
	if (!worker->ready) {
		*err = worker->err;
		return stop(data);
	}
	if (!block->plain)
		length = squashfs_compressor_run(&worker->compressor, block->bytes, block->length, block->compressed);
	block->size = length ? (uint32_t)length : (uint32_t)block->length | SQUASHFS_BLOCK_PLAIN;
	for (block = place_all(data, block); block;) {
		struct squashfs_block *next = block->next;
		bool plain = block->size & SQUASHFS_BLOCK_PLAIN;

		if (image_write_at(data->request.fd, plain ? block->bytes : block->compressed,
				   block->size & (SQUASHFS_BLOCK_PLAIN - 1), block->entry, err))
			return stop(data);
		squashfs_block_drop(block);
		block = next;
	}
	return 0;
}

int squashfs_block_put(struct squashfs_block *block, struct image_error *err)
{
	struct squashfs_data *data = block->data;

	block->entry = data->entries;
	if (new_entry(data, err)) {
		squashfs_block_drop(block);
		return -1;
	}
	block->job.run = run;
	block->sequence = data->sequence++;
	return thread_pool_put(data->work, &block->job, err);
}

int squashfs_data_hole(struct squashfs_data *data, struct image_error *err)
{
	return new_entry(data, err);
}

uint64_t squashfs_data_entries(const struct squashfs_data *data)
{
	return data->entries;
}

int squashfs_data_run(struct squashfs_data *data, uint64_t *number, struct image_error *err)
{
	if (!chunk_of(data, (void **)data->starts, data->runs, sizeof(uint64_t), err))
		return -1;
	*number = data->runs++;
	return 0;
}

int squashfs_data_finish(struct squashfs_data *data, uint64_t *end, struct image_error *err)
{
	if (thread_pool_drain(data->work, err))
		return -1;
	*end = data->offset;
	return 0;
}

uint32_t squashfs_data_size(const struct squashfs_data *data, uint64_t entry)
{
	return data->sizes[entry / CHUNK][entry % CHUNK];
}

uint64_t squashfs_data_start(const struct squashfs_data *data, uint64_t number)
{
	return data->starts[number / CHUNK][number % CHUNK];
}
