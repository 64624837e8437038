/* SPDX-License-Identifier: Apache-2.0 */
/* Measures parts of a node: functions return a negative number on failure, with errno. */
#ifndef NODE_SPEED_SPEED_H
#define NODE_SPEED_SPEED_H

#include <stdbool.h>
#include <stddef.h>

/* Seconds of a clock that only goes forward. */
double speed_now(void);

/* All processors of the job, each with a thread, for so long: turns of a loop per second, in millions. A wrong result of the loop: -1 with
 * errno EBADMSG. */
double speed_processor(double seconds);
/* All processors copy at once: MB/s. */
double speed_memory(double seconds);
/* A file of `mb` MB in `folder`, written and synced, then read: MB/s. */
double speed_disk(const char *folder, unsigned mb);

/* What `program` says of all GPUs of the job, within so many seconds: GFLOP/s of the slowest one. Negative: `why` says why; errno EBADMSG:
 * a result was wrong. */
double speed_gpu(const char *program, double seconds, char *why, size_t size);

struct speed_peers {
	int listener;
	unsigned short port;
	char address[64];
	char token[40];     /* who connects says it: anybody may */
	size_t me, n;
	char (*hosts)[80]; /* ADDRESS:PORT of each, by rank */
	int *connected;    /* -1: not yet */
};

/* Listens where others reach this node. Returns 0 or -1. */
int speed_listen(struct speed_peers *peers);
/* Both ends send for so long. MB/s of the slower direction. */
double speed_pair(struct speed_peers *peers, size_t other, double seconds);
/* Sums `count` numbers over all, `times` times, by recursive doubling: MB/s of the vector. A wrong sum: -1 with errno EBADMSG. */
double speed_reduce(struct speed_peers *peers, size_t count, unsigned times);

#endif
