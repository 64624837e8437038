/* SPDX-License-Identifier: Apache-2.0 */
/* How many steps of this node entered the jail, and how many did not and why: for the metrics. */
#ifndef JAIL_STEP_COUNTERS_H
#define JAIL_STEP_COUNTERS_H

#include <stdint.h>

/* Of this node since it started; root's alone to write. One number of 8 bytes for each counter, in their order. */
#define JAIL_STEP_COUNTERS "/run/cellblock/step-counters"

enum jail_step_counter {
	JAIL_STEPS_ENTERED,
	JAIL_STEPS_WRONG_OPTION, /* an option of the job is wrong */
	JAIL_STEPS_INSIDE,       /* what users wrote in the jail keeps them out */
	JAIL_STEPS_SHORTAGE,     /* processes, mounts or memory have run out for now */
	JAIL_STEPS_NODE,         /* the node is at fault */
	JAIL_STEP_COUNTER_COUNT
};

/* Maps the counters of `file`, and makes it where there is none. Without a file nothing is counted: that is no
 * reason to fail a step. Not for children: those run for users. */
void jail_step_counters_open(const char *file);

/* Adds one; once for each process, for it is one step. */
void jail_step_count(enum jail_step_counter which);

/* Reads them all. Returns 0, or -1 with errno. */
int jail_step_counters_read(const char *file, uint64_t values[JAIL_STEP_COUNTER_COUNT]);

#endif
