/* SPDX-License-Identifier: Apache-2.0 */
/* A child of slurmstepd or slurmd that does what may wait for ever in its parent's place, and can be killed. */
#ifndef JAIL_HELPER_PROCESS_H
#define JAIL_HELPER_PROCESS_H

#include <sys/types.h>

/* What it does takes microseconds. */
#define HELPER_LONGEST_MS 500

struct helper {
	pid_t pid;   /* 0: this is the helper; -1: there is none */
	int process; /* its pidfd, or -1 */
};

/* Forks one, which allocates no memory: other threads may hold the locks of that. */
struct helper helper_begin(void);

/* Ends it, unless it has ended by itself. Returns its exit status; -1: it was ended, or does not end yet. */
int helper_end(struct helper *helper);

#endif
