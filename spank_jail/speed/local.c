/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a node's processors, memory and disk. node_speed.c calls it. */
#define _GNU_SOURCE
#include "speed.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 1024
#define LOOP 2000000u
/* What the loop's numbers are after one turn, from any correct processor. */
#define MULTIPLIER 6364136223846793005ull
#define INCREMENT 1442695040888963407ull
/* Larger than any cache that a thread has for itself. */
#define COPY_BYTES ((size_t)16 << 20)
#define DISK_BLOCK ((size_t)1 << 20)

double speed_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct work {
	void (*run)(struct work *work);
	double until;
	double done; /* turns, or bytes */
	int wrong;   /* an errno */
};

/* One turn: integers and floating point, each of which has one right result. */
static uint64_t turn(double *sum)
{
	uint64_t number = 1;
	double total = 0;

	for (unsigned i = 0; i < LOOP; i++) {
		number = number * MULTIPLIER + INCREMENT;
		total += (double)(number >> 60);
	}
	*sum = total;
	return number;
}

static void compute(struct work *work)
{
	double first, again;
	uint64_t expected = turn(&first);

	do {
		if (turn(&again) != expected || again < first || again > first)
			work->wrong = EBADMSG;
		work->done += LOOP / 1e6;
	} while (speed_now() < work->until);
}

static void copy(struct work *work)
{
	char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);

	if (!from || !to) {
		work->wrong = ENOMEM;
		free(from);
		free(to);
		return;
	}
	memset(from, 1, COPY_BYTES);
	memset(to, 2, COPY_BYTES);
	do {
		memcpy(to, from, COPY_BYTES);
		from[0] = to[COPY_BYTES - 1];
		work->done += 2.0 * COPY_BYTES / 1e6;
	} while (speed_now() < work->until);
	if (memcmp(from, to, COPY_BYTES))
		work->wrong = EBADMSG;
	free(from);
	free(to);
}

static void *run(void *argument)
{
	struct work *work = argument;

	work->run(work);
	return NULL;
}

/* By a thread for each processor: what is done in a second. */
static double together(void (*what)(struct work *work), double seconds)
{
	cpu_set_t processors;
	int n = sched_getaffinity(0, sizeof(processors), &processors) ? 1 : CPU_COUNT(&processors);
	struct work *works = calloc(MOST_THREADS, sizeof(*works));
	pthread_t *threads = calloc(MOST_THREADS, sizeof(*threads));
	double begun = speed_now(), done = 0;
	int started = 0, wrong = works && threads ? 0 : ENOMEM;

	for (; !wrong && started < n && started < MOST_THREADS; started++) {
		works[started] = (struct work){ .run = what, .until = begun + seconds };
		if ((wrong = pthread_create(&threads[started], NULL, run, &works[started])))
			break;
	}
	for (int i = 0; i < started; i++) {
		pthread_join(threads[i], NULL);
		done += works[i].done;
		wrong = works[i].wrong ? works[i].wrong : wrong;
	}
	double took = speed_now() - begun;
	free(works);
	free(threads);
	errno = wrong;
	return wrong ? -1 : done / took;
}

double speed_processor(double seconds)
{
	return together(compute, seconds);
}

double speed_memory(double seconds)
{
	return together(copy, seconds);
}

/* Writes `mb` blocks and syncs them, or reads and compares them. Returns 0, or -1 with errno. */
static int pass(int fd, char *block, char *other, unsigned mb, bool writes)
{
	for (unsigned i = 0; i < mb; i++) {
		memset(block, (int)(i % 251) + 1, DISK_BLOCK);
		ssize_t moved = writes ? pwrite(fd, block, DISK_BLOCK, (off_t)(i * DISK_BLOCK))
				       : pread(fd, other, DISK_BLOCK, (off_t)(i * DISK_BLOCK));
		if (moved != (ssize_t)DISK_BLOCK) {
			errno = moved < 0 ? errno : EIO;
			return -1;
		}
		if (!writes && memcmp(block, other, DISK_BLOCK)) {
			errno = EBADMSG;
			return -1;
		}
	}
	return writes ? fsync(fd) : 0;
}

double speed_disk(const char *folder, unsigned mb)
{
	char *block = malloc(DISK_BLOCK), *other = malloc(DISK_BLOCK);
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	double begun = speed_now();
	int wrong = !block || !other ? ENOMEM : fd < 0 ? errno : 0;

	if (!wrong && pass(fd, block, other, mb, true))
		wrong = errno;
	/* From the disk, where there is one, and not from memory. */
	if (!wrong)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (!wrong && pass(fd, block, other, mb, false))
		wrong = errno;
	double took = speed_now() - begun;
	if (fd >= 0)
		close(fd);
	free(block);
	free(other);
	errno = wrong;
	return wrong ? -1 : 2.0 * mb / took;
}
