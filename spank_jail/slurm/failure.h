/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the reason why a step has no jail until it can be shown, and says whether the job or the node
 * is at fault (docs/decisions/jail-failure.md). */
#ifndef JAIL_FAILURE_H
#define JAIL_FAILURE_H

#include <stdbool.h>

#include "native/base/error.h"
#include "native/base/node_counters.h"
#include "enter_step.h"

#define JAIL_LOG_NAME "spank_jail: "

/* Negative, not ESPANK_ERROR: before 25.05 Slurm takes a positive result for success, and the job ran
 * outside the jail. */
#define JAIL_FAILED (-1)

struct jail_failure {
	char line[1400]; /* "": the jail was built */
	enum jail_node_counter counted_as; /* whose fault it is */
};

/* Says an error once, as one line, where Slurm shows it: slurmd's log and, once the step's streams are
 * connected, the job's error output. Returns what SPANK takes for a failure. */
int jail_failure_report(const struct jail_error *err);

/* Keeps the error, and tells it to the log at once as well: the streams may not come up. */
void jail_failure_remember(struct jail_failure *failure, const struct jail_error *err);

/* Drains the node where the fault is the node's: before the next job comes and fails, too. Slurm does it by
 * itself for batch jobs alone, with a reason that says nothing. */
void jail_failure_drain(const struct jail_failure *failure, const char *node);

/* Counts the step, as one that failed or that entered: once, at its first failure or when it is in. */
void jail_failure_count(const struct jail_failure *failure);

/* Whether nothing is gained by going on until the streams are connected: a batch job's are files on the
 * volume, and for files that cannot be opened Slurm blames the job. */
bool jail_failure_needs_volume(const struct jail_failure *failure, const struct jail_step *step);

/* What init_post_opt is to return for a step that cannot go on. */
int jail_failure_result(const struct jail_failure *failure);

/* Told once a step, from where the streams are connected and no task is forked yet. Returns what user_init
 * is to return. */
int jail_failure_tell(const struct jail_failure *failure, const struct jail_step *step);

#endif
