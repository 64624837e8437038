/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a digest of an image file, by which the cache notices damage, and copies files while doing so. deliver.c,
 * draft.c, image.c and enroot/importing call it. */
#define _GNU_SOURCE
#include "content_digest.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/layers/hash.h"
#include "native/layers/sha256_many.h"
#include "native/base/text.h"

#define CHUNK ((size_t)1 << 20)
#define LANES 16 /* the widest registers */
#define MOST_THREADS 16

struct work {
	int fd;
	unsigned long long size;
	size_t chunks;
	atomic_size_t next;
	atomic_int failed; /* errno */
	unsigned char *digests;
};

/* All of it, or errno. */
static int read_all(int fd, unsigned char *buffer, size_t length, off_t offset)
{
	while (length) {
		ssize_t got = pread(fd, buffer, length, offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? errno : ENODATA;
		buffer += got;
		length -= (size_t)got;
		offset += got;
	}
	return 0;
}

static void *hash_chunks(void *argument)
{
	struct work *work = argument;
	scoped_free unsigned char *buffer = malloc(CHUNK * LANES);
	struct sha256_one ones[LANES];

	if (!buffer)
		atomic_store(&work->failed, ENOMEM);
	while (!atomic_load(&work->failed)) {
		size_t first = atomic_fetch_add(&work->next, LANES), n = 0;
		unsigned long long start = (unsigned long long)first * CHUNK;
		if (first >= work->chunks)
			break;
		size_t length = work->size - start < CHUNK * LANES ? (size_t)(work->size - start) : CHUNK * LANES;
		int number = read_all(work->fd, buffer, length, (off_t)start);
		if (number) {
			atomic_store(&work->failed, number);
			break;
		}
		for (size_t at = 0; at < length; at += CHUNK, n++)
			ones[n] = (struct sha256_one){ buffer + at, length - at < CHUNK ? length - at : CHUNK,
						       work->digests + (first + n) * 32 };
		image_sha256_many(ones, n);
	}
	return NULL;
}

int content_digest(int fd, unsigned long long size, unsigned threads, char digits[65], struct jail_error *err)
{
	struct work work = { .fd = fd, .size = size, .chunks = (size_t)((size + CHUNK - 1) / CHUNK) };
	pthread_t others[MOST_THREADS];
	unsigned started = 0;
	struct image_hash hash;
	unsigned char digest[32];

	scoped_free unsigned char *digests = malloc(work.chunks * 32 + 1);
	work.digests = digests;
	if (!digests || image_hash_begin(&hash))
		return jail_fail(err, "malloc", ENOMEM, "no memory to hash the image");
	while (started + 1 < threads && started < MOST_THREADS && (size_t)(started + 1) * LANES < work.chunks &&
	       !pthread_create(&others[started], NULL, hash_chunks, &work))
		started++;
	hash_chunks(&work);
	while (started)
		pthread_join(others[--started], NULL);
	int number = atomic_load(&work.failed);
	if (!number)
		image_hash_add(&hash, digests, work.chunks * 32);
	image_hash_end(&hash, digest);
	if (number)
		return jail_fail(err, "read", number, number == ENODATA ? "the image is shorter than it was" : "cannot read the image");
	image_hash_digits(digest, digits);
	return 0;
}

int content_sha256(int fd, unsigned long long size, char digits[65], struct jail_error *err)
{
	scoped_free unsigned char *buffer = malloc(CHUNK);
	struct image_hash hash;
	unsigned char digest[32];
	off_t at = 0;
	ssize_t got = 0;

	if (!buffer || image_hash_begin(&hash))
		return jail_fail(err, "malloc", ENOMEM, "no memory to hash the layer");
	/* A byte more than it should have: whose file it is may write on and on. */
	while ((unsigned long long)at <= size && (got = pread(fd, buffer, CHUNK, at)) > 0) {
		image_hash_add(&hash, buffer, (size_t)got);
		at += got;
	}
	int number = errno;
	image_hash_end(&hash, digest);
	if (got < 0)
		return jail_fail(err, "read", number, "cannot read the layer");
	image_hash_digits(digest, digits);
	return 0;
}

int content_copy(int from, int to, struct jail_error *err)
{
	struct stat st;
	off_t at = 0;

	if (fstat(from, &st))
		return jail_fail(err, "fstat", errno, "cannot look at the file in the cache");
	while (at < st.st_size) {
		ssize_t done = copy_file_range(from, &at, to, NULL, (size_t)(st.st_size - at), 0);
		if (done > 0 || (done < 0 && errno == EINTR))
			continue;
		if (!done)
			return jail_fail(err, NULL, ENODATA, "the file in the cache became shorter");
		if (errno != EXDEV && errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS)
			return jail_fail(err, "copy_file_range", errno, "cannot copy the file in the cache");
		break;
	}
	scoped_free char *buffer = malloc(1 << 20);
	while (at < st.st_size && buffer) {
		ssize_t got = pread(from, buffer, 1 << 20, at);
		if (got <= 0 || text_write(to, buffer, (size_t)got))
			return jail_fail(err, "write", got ? errno : ENODATA, "cannot copy the file in the cache");
		at += got;
	}
	return buffer ? 0 : jail_fail(err, NULL, ENOMEM, "no memory");
}
