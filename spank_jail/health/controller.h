/* SPDX-License-Identifier: Apache-2.0 */
/* Asks slurmctld about this node and drained ones, and drains, resumes or comments this one, by Slurm's commands. */
#ifndef NODE_HEALTH_CONTROLLER_H
#define NODE_HEALTH_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>

#include "native/base/error.h"

struct health_node {
	bool known;  /* slurmctld has a record of it */
	bool drains; /* takes no new jobs because somebody said so */
	char reason[1024];  /* without who gave it, and when */
	char comment[1024];
};

/* Returns 0, or -1: slurmctld does not answer. */
int health_controller_node(const char *node, struct health_node *record, struct jail_error *err);

/* Whether the comment of `job` says health-leave-out=CHECK,CHECK with `check` among them. Without an answer it does not. */
bool health_controller_job_leaves_out(const char *job, const char *check);

int health_controller_drain(const char *node, const char *reason, struct jail_error *err);
int health_controller_resume(const char *node, struct jail_error *err);
int health_controller_comment(const char *node, const char *comment, struct jail_error *err);

struct health_drains {
	unsigned nodes;   /* of the cluster */
	unsigned drained; /* by that check within the time, without this node */
	unsigned before;  /* of these, those that were first */
};

/* How many nodes `check` has drained since `since` (Unix time); `at` and `node` are this one's. */
int health_controller_count(const char *check, long long since, long long at, const char *node, struct health_drains *drains,
			    struct jail_error *err);

#endif
