/* SPDX-License-Identifier: Apache-2.0 */
/* Active checks: a job of root's measures idle nodes, and each result is compared with those of the other nodes of
 * its kind (docs/health.md). */
#ifndef ACTIVE_CHECKS_ACTIVE_H
#define ACTIVE_CHECKS_ACTIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "spank_jail/health/config.h"

/* Hidden, root's alone, and below all others: slurm.conf.j2. */
#define ACTIVE_PARTITION "cellblock_health"
/* In one job. */
#define ACTIVE_MOST_NODES 64
/* Fewer say nothing of each other. */
#define ACTIVE_LEAST_TO_COMPARE 3
#define ACTIVE_NAME_SIZE 256

enum active_kind { ACTIVE_PROCESSOR, ACTIVE_MEMORY, ACTIVE_DISK, ACTIVE_GPU, ACTIVE_PAIRS, ACTIVE_REDUCE, ACTIVE_KINDS };

/* Their names in tables, in this order. */
extern const char *const active_names[ACTIVE_KINDS];

enum active_found { ACTIVE_NOTHING, ACTIVE_VALUE, ACTIVE_COULD_NOT, ACTIVE_WRONG };

struct active_result {
	enum active_found found;
	double value;
	char why[120];
};

struct active_node {
	char name[ACTIVE_NAME_SIZE];
	char set[ACTIVE_NAME_SIZE]; /* its features, and its GPUs */
	unsigned gpus;		    /* that it declares */
	bool idle, drains;
	long long started; /* slurmd, Unix time */
	bool due, chosen;
	struct active_result results[ACTIVE_KINDS];
	double remembered[ACTIVE_KINDS]; /* of an earlier job; 0: none */
};

struct active_nodes {
	struct active_node *items;
	size_t n;
};

/* What slurmctld says of nodes. Returns 0 or -1. */
int active_list(struct active_nodes *nodes, struct jail_error *err);
/* Reads lines of `scontrol --oneliner show nodes`. */
void active_parse(struct active_nodes *nodes, char *text);

/* What is kept below `state`: values of the last job, whether the node was drained since, and when it was looked at. */
void active_recall(struct active_nodes *nodes, const char *state, long long now, unsigned every_s);
void active_remember(const struct active_node *node, const char *state);

/* The other of `me` among `n` in a round of the circle method, or `n`: it rests. No two rounds below n - 1 (n, if odd) have a pair in common. */
size_t active_partner(size_t me, size_t round, size_t n);
/* So many rounds name a slow node: log2 n, rounded up; of three nodes all three. */
size_t active_rounds(size_t n);

/* Has `chosen`, all of one set, measured by a job. 1: done; 0: the job did not start or was ended, as for a user's job; -1. */
int active_measure(struct active_node *const *chosen, size_t n, const struct health_config *config, struct jail_error *err);

/* Copies what node-health wrote for the exporter of each node that there is to `folder`/NODE.prom: when it has changed, and every ten
 * minutes, which says that it is still so. Without the folder nobody asks. */
void active_tell_metrics(const struct active_nodes *nodes, const char *state, const char *folder);

/* A line for node-health: CHECK P|F|C TEXT, a new string; NULL: nothing was found out. `nodes` has all, to compare. */
char *active_judge(const struct active_nodes *nodes, const struct active_node *node, enum active_kind kind,
		   const struct health_config *config);

/* An argument of a check, as a number. */
double active_setting(const struct health_config *config, enum active_kind kind, const char *key, double otherwise);
const char *active_word(const struct health_config *config, enum active_kind kind, const char *key, const char *otherwise);

#endif
