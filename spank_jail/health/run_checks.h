/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the checks side by side, each with a time limit. */
#ifndef NODE_HEALTH_RUN_CHECKS_H
#define NODE_HEALTH_RUN_CHECKS_H

#include "config.h"

/* A check that takes longer runs by itself and its verdict is of the turn that finds it: slurmd ends a turn after 60 s. */
#define HEALTH_LONGEST_IN_TURN_S 40

#define HEALTH_TEXT_SIZE 240

enum health_verdict { HEALTH_COULD_NOT_RUN = 'C', HEALTH_PASSED = 'P', HEALTH_FAILED = 'F', HEALTH_RUNS = 'R' };

struct health_result {
	enum health_verdict verdict; /* HEALTH_RUNS: it has no verdict yet */
	char text[HEALTH_TEXT_SIZE]; /* one line: why; may be "" */
};

/* Runs `n` checks of `node`. Each has a folder of its own below `state`, for what it remembers. */
void health_run(const struct health_check *const *checks, size_t n, const char *state, const char *node,
		struct health_result *results);

#endif
