/* SPDX-License-Identifier: Apache-2.0 */
/* Reports a node's health: to people, to the metrics exporter, and in the node's comment in Slurm. */
#ifndef NODE_HEALTH_TELL_H
#define NODE_HEALTH_TELL_H

#include "drain.h"

/* Prints a line for each check, or one JSON object. */
void health_show(const struct health_config *config, const struct health_state *state, const char *node, bool as_json);

/* Writes FOLDER/metrics: Prometheus' text format, without times, so that it changes when a verdict does. */
void health_tell_metrics(const struct health_turn *turn, enum health_standing standing);

/* Puts which checks failed or could not run into the comment of the node's record, when it has changed. An administrator's stays. */
int health_tell_comment(const struct health_turn *turn, enum health_standing standing, struct jail_error *err);

#endif
