/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered of each check between runs: its last results, and whether the node counts as sick by it. */
#ifndef NODE_HEALTH_STATE_H
#define NODE_HEALTH_STATE_H

#include "run_checks.h"

#define HEALTH_NEVER '-'

struct health_entry {
	char name[HEALTH_NAME_SIZE];
	char verdict;       /* enum health_verdict, or HEALTH_NEVER */
	bool sick;          /* has struck out, and has not passed often enough since */
	unsigned passes;    /* in a row */
	unsigned could_not; /* in a row */
	long long at;       /* Unix time of the last verdict */
	char history[HEALTH_MOST_STRIKES + 1]; /* of P and F, the oldest first */
	char text[HEALTH_TEXT_SIZE];
};

struct health_state {
	struct health_entry entries[HEALTH_MOST_CHECKS];
	size_t n;
};

/* Reads `file`; lines that cannot be read are forgotten. */
void health_state_read(struct health_state *state, const char *file);
/* Replaces it by rename. Returns 0, or -1 with errno. */
int health_state_write(const struct health_state *state, const char *file);

/* The entry of a check, made when there is none. */
struct health_entry *health_state_entry(struct health_state *state, const char *name);
/* Forgets checks that are no longer there. */
void health_state_keep(struct health_state *state, const struct health_config *config);

/* Counts a result. `at once`: one failure suffices, whatever the check's strikes. */
void health_state_count(struct health_entry *entry, const struct health_check *check, const struct health_result *result,
			long long now, bool at_once);
/* Begins anew: somebody took the node back into service. */
void health_state_forgive(struct health_entry *entry);

#endif
