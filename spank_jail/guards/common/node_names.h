/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses lists of nodes in which a few letters stand for billions of names. */
#ifndef JAIL_NODE_NAMES_H
#define JAIL_NODE_NAMES_H

#include <link.h>

#include "native/base/error.h"

/* How many names a list has at most, as "a[1-3,7],b"; `most` + 1: more than `most`, or it cannot be read. */
unsigned jail_node_names_count(const char *names, unsigned most);

/* In slurmctld: a list that has far more names than the cluster has nodes is taken for one of a single node that there is not.
 * Returns 0; 1 when `program` reads such lists in an unknown way; -1. */
int jail_node_names_guard(const struct link_map *program, struct jail_error *err);

/* In slurmd and slurmstepd: Slurm's library makes no list of more than 65,536 names, which is the most that a cluster has. Returns as
 * above. */
int jail_node_names_guard_library(struct jail_error *err);

#endif
