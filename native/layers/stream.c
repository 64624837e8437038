/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, decompresses and checks the digests of one layer, in threads of its own that work ahead of the reader.
 * layers.c and enroot/importing/image_files.c call it. */
#define _GNU_SOURCE
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hash.h"
#include "inflate.h"
#include "scoped.h"

/* Compressed bytes come in smaller blocks: a pipe gives 64 KiB at most at once. */
#define COMPRESSED_BLOCK ((size_t)256 << 10)
#define STOP_MS 100
#define COMPRESSED_BLOCKS (2 * IMAGE_QUEUE_ROOM + 3)

struct side {
	struct image_queue queue;
	pthread_t thread;
	bool started;
};

struct image_stream {
	int fd;
	unsigned long long left; /* bytes to read */
	atomic_ullong *counter;
	struct image_pool *pool, compressed;
	struct side reading, inflating, hashing, rehashing;
	struct image_queue out;
	bool check_digest, check_diff_id, plain;
	char digest[65], diff_id[65], found[65], found_diff_id[65];
	pthread_mutex_t mutex;
	struct image_error error; /* the first of any thread */
	bool failed;
	atomic_bool stopped;
	const struct image_interrupt *interrupt;
};

static void fail(struct image_stream *stream, const struct image_error *err)
{
	{
		scoped_lock(&stream->mutex);
		if (!stream->failed)
			stream->error = *err;
		stream->failed = true;
	}
	atomic_store(&stream->stopped, true);
	image_queue_stop(&stream->out);
	image_queue_stop(&stream->inflating.queue);
	image_queue_stop(&stream->hashing.queue);
	image_queue_stop(&stream->rehashing.queue);
	image_pool_stop(&stream->compressed);
}

/* Until there is something to read. A pipe or socket may be silent for ever, and who closes the stream waits for this
 * thread; a file is ready always. */
static bool is_ready(struct image_stream *stream)
{
	struct pollfd wait = { .fd = stream->fd, .events = POLLIN };

	while (!atomic_load(&stream->stopped))
		if (poll(&wait, 1, STOP_MS) != 0)
			return true;
	return false;
}

static ssize_t read_full(struct image_stream *stream, unsigned char *data, size_t length)
{
	size_t done = 0;
	struct image_error err;

	if (length > stream->left)
		length = (size_t)stream->left;
	while (done < length && is_ready(stream)) {
		ssize_t got = read(stream->fd, data + done, length - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			image_fail_call(&err, "", "read", errno);
			fail(stream, &err);
			return -1;
		}
		if (!got)
			break;
		done += (size_t)got;
	}
	stream->left -= done;
	if (stream->counter)
		atomic_fetch_add(stream->counter, (unsigned long long)done);
	return (ssize_t)done;
}

/* NULL: the end, or it failed. `start` bytes of `head` were read before. */
static struct image_block *read_block(struct image_stream *stream, struct image_pool *pool,
				      const unsigned char *head, size_t start)
{
	struct image_block *block = image_block_take(pool);
	ssize_t got;

	if (!block)
		return NULL;
	memcpy(block->data, head, start);
	got = read_full(stream, block->data + start, pool->block_size - start);
	block->length = start + (size_t)(got > 0 ? got : 0);
	if (got >= 0 && block->length)
		return block;
	image_block_release(block);
	return NULL;
}

static bool pass_on(struct image_stream *stream, struct image_block *block, struct image_queue *to, bool hashed)
{
	if (hashed && !image_queue_put(&stream->hashing.queue, image_block_hold(block))) {
		image_block_release(block);
		return false;
	}
	return image_queue_put(to, block);
}

/* Reads plain layers into the blocks that the tar's reader gets; compressed ones into blocks of their own. */
static void *read_all(void *argument)
{
	struct image_stream *stream = argument;
	unsigned char head[6];
	ssize_t start = read_full(stream, head, sizeof(head));
	enum image_compression compression = image_compression_of(head, start > 0 ? (size_t)start : 0);
	bool plain = compression == IMAGE_PLAIN;
	struct image_queue *to = plain ? &stream->out : &stream->inflating.queue;
	struct image_pool *pool = plain ? stream->pool : &stream->compressed;
	struct image_error err;

	if (compression == IMAGE_OTHER) {
		image_fail(&err, IMAGE_FAULT_SOURCE, "", "compressed with xz or bzip2, which no layer may be");
		fail(stream, &err);
	}
	stream->plain = plain;
	for (struct image_block *block; start >= 0 && (block = read_block(stream, pool, head, (size_t)start));
	     start = 0) {
		bool last = block->length < pool->block_size;

		if (!pass_on(stream, block, to, stream->check_digest || (plain && stream->check_diff_id)) || last)
			break;
	}
	image_queue_end(&stream->hashing.queue);
	/* The other thread ends what it fills; of a plain layer it takes nothing. */
	image_queue_end(&stream->inflating.queue);
	if (plain)
		image_queue_end(&stream->out);
	return NULL;
}

static void hash_queue(struct image_queue *queue, char text[65])
{
	struct image_hash hash;
	unsigned char digest[32];

	if (image_hash_begin(&hash))
		return;
	for (struct image_block *block; (block = image_queue_take(queue)); image_block_release(block))
		image_hash_add(&hash, block->data, block->length);
	image_hash_end(&hash, digest);
	image_hash_digits(digest, text);
}

static void *hash_all(void *argument)
{
	struct image_stream *stream = argument;

	hash_queue(&stream->hashing.queue, stream->found);
	return NULL;
}

static void *rehash_all(void *argument)
{
	struct image_stream *stream = argument;

	hash_queue(&stream->rehashing.queue, stream->found_diff_id);
	return NULL;
}

static bool hand_out(struct image_stream *stream, struct image_block *block)
{
	if (stream->check_diff_id && !image_queue_put(&stream->rehashing.queue, image_block_hold(block))) {
		image_block_release(block);
		return false;
	}
	return image_queue_put(&stream->out, block);
}

/* Decompresses `from` into `*out`, which it hands on when it is full. */
static int inflate_block(struct image_stream *stream, struct image_inflate *inflate,
			 const struct image_block *from, struct image_block **out, struct image_error *err)
{
	const unsigned char *in = from->data;
	size_t left = from->length;

	for (;;) {
		if (!*out && !(*out = image_block_take(stream->pool)))
			return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
		unsigned char *at = (*out)->data + (*out)->length;
		size_t capacity = IMAGE_BLOCK_SIZE - (*out)->length;

		if (image_inflate_some(inflate, &in, &left, &at, &capacity, err))
			return -1;
		(*out)->length = IMAGE_BLOCK_SIZE - capacity;
		if (capacity)
			return 0; /* all of the input was used up */
		struct image_block *full = *out;

		*out = NULL;
		if (!hand_out(stream, full))
			return image_fail(err, IMAGE_FAULT_CANCELLED, "", "stopped");
	}
}

static int inflate_queue(struct image_stream *stream, struct image_block *block, struct image_error *err)
{
	struct image_inflate *inflate = image_inflate_new(image_compression_of(block->data, block->length), err);
	struct image_block *out = NULL;
	int result = inflate ? 0 : -1;

	for (; block; block = result ? NULL : image_queue_take(&stream->inflating.queue)) {
		if (!result)
			result = inflate_block(stream, inflate, block, &out, err);
		image_block_release(block);
	}
	if (!result && !image_inflate_is_complete(inflate))
		result = image_fail(err, IMAGE_FAULT_SOURCE, "", "the compressed data was cut off");
	if (!result && out && out->length)
		hand_out(stream, out);
	else
		image_block_release(out);
	image_inflate_free(inflate);
	return result;
}

static void *inflate_all(void *argument)
{
	struct image_stream *stream = argument;
	struct image_error err;
	struct image_block *first = image_queue_take(&stream->inflating.queue);

	if (first && inflate_queue(stream, first, &err))
		fail(stream, &err);
	image_queue_end(&stream->rehashing.queue);
	if (first)
		image_queue_end(&stream->out);
	return NULL;
}

static void start_side(struct side *side, void *(*run)(void *), struct image_stream *stream)
{
	side->started = !pthread_create(&side->thread, NULL, run, stream);
}

static void join(struct side *side)
{
	if (side->started)
		pthread_join(side->thread, NULL);
	side->started = false;
}

static void copy_digest(char to[65], const char *from)
{
	if (from)
		memcpy(to, from, strnlen(from, 64));
}

struct image_stream *image_stream_open(struct image_pool *pool, const struct image_stream_request *request,
				       struct image_error *err)
{
	struct image_stream *stream = calloc(1, sizeof(*stream));
	struct side *sides[4];
	void *(*runs[4])(void *) = { read_all, inflate_all, hash_all, rehash_all };

	if (!stream) {
		close(request->fd);
		image_fail_memory(err);
		return NULL;
	}
	stream->fd = request->fd;
	stream->left = request->length ? request->length : ULLONG_MAX;
	stream->counter = request->counter;
	stream->pool = pool;
	stream->interrupt = request->interrupt;
	stream->check_digest = request->digest;
	stream->check_diff_id = request->diff_id;
	copy_digest(stream->digest, request->digest);
	copy_digest(stream->diff_id, request->diff_id);
	image_pool_init(&stream->compressed, COMPRESSED_BLOCKS, COMPRESSED_BLOCK);
	pthread_mutex_init(&stream->mutex, NULL);
	image_queue_init(&stream->out);
	sides[0] = &stream->reading;
	sides[1] = &stream->inflating;
	sides[2] = &stream->hashing;
	sides[3] = &stream->rehashing;
	posix_fadvise(stream->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (int i = 0; i < 4; i++)
		image_queue_init(&sides[i]->queue);
	/* The reader last: the others find their queues empty, and end when it ends them. */
	for (int i = 3; i >= 0; i--) {
		start_side(sides[i], runs[i], stream);
		if (!sides[i]->started) {
			image_fail_call(err, "", "pthread_create", EAGAIN);
			fail(stream, err);
			image_stream_close(stream);
			return NULL;
		}
	}
	return stream;
}

static int check(const char *expected, const char *found, const char *what, struct image_error *err)
{
	if (!expected[0] || !strcmp(expected, found))
		return 0;
	return image_fail(err, IMAGE_FAULT_SOURCE, "", "damaged: its %s is sha256:%s, and should be sha256:%s", what,
			  found, expected);
}

static int ended(struct image_stream *stream, struct image_error *err)
{
	join(&stream->reading);
	join(&stream->inflating);
	join(&stream->hashing);
	join(&stream->rehashing);
	if (stream->failed) {
		*err = stream->error;
		return -1;
	}
	if (stream->plain)
		memcpy(stream->found_diff_id, stream->found, sizeof(stream->found));
	if (check(stream->digest, stream->found, "digest", err))
		return -1;
	return check(stream->diff_id, stream->found_diff_id, "content's digest (diff_id)", err);
}

int image_stream_next(struct image_stream *stream, struct image_block **block, struct image_error *err)
{
	int got = image_queue_await(&stream->out, stream->interrupt, block, err);

	return got ? got : ended(stream, err);
}

void image_stream_close(struct image_stream *stream)
{
	struct image_error stopped;

	if (!stream)
		return;
	image_fail(&stopped, IMAGE_FAULT_CANCELLED, "", "stopped");
	fail(stream, &stopped);
	join(&stream->reading);
	join(&stream->inflating);
	join(&stream->hashing);
	join(&stream->rehashing);
	image_queue_destroy(&stream->out);
	image_queue_destroy(&stream->reading.queue);
	image_queue_destroy(&stream->inflating.queue);
	image_queue_destroy(&stream->hashing.queue);
	image_queue_destroy(&stream->rehashing.queue);
	image_pool_destroy(&stream->compressed);
	pthread_mutex_destroy(&stream->mutex);
	close(stream->fd);
	free(stream);
}
