/* SPDX-License-Identifier: Apache-2.0 */
/* Drains this node when a check found it sick, if not too many nodes are drained already (the
 * budget), and resumes it. */
#ifndef NODE_HEALTH_DRAIN_H
#define NODE_HEALTH_DRAIN_H

#include "state.h"

enum health_standing {
	HEALTH_SERVES,      /* or would, for all that we know */
	HEALTH_OVER_BUDGET, /* it is sick, and serves: the check has drained too many */
	HEALTH_OURS,        /* drained by a check */
	HEALTH_OTHERS,      /* drained by somebody else */
	HEALTH_UNKNOWN,     /* slurmctld does not answer, or does not know the node */
};

struct health_turn {
	const struct health_config *config;
	struct health_state *state;
	const char *node;
	const char *folder; /* of what is remembered */
	long long now;
	bool judged; /* at the controller, by active-checks: the node itself leaves such a drain alone */
};

/* Looks whether something is to be done, does it, and says how the node stands then. slurmctld is asked only where there is. `err` is
 * filled with HEALTH_UNKNOWN. */
enum health_standing health_settle(struct health_turn *turn, struct jail_error *err);

/* Remembers that the node registers drained, for that reason. Slurm 22.05 takes the state with the registration and not the reason. */
void health_registers_drained(const struct health_turn *turn, const char *reason);

/* The first check by which the node is sick and that drains, or NULL. */
const struct health_entry *health_sick(const struct health_turn *turn);

/* The reason of a drain by that check. */
void health_reason_of(const struct health_turn *turn, const struct health_entry *entry, char *buffer, size_t size);

#endif
