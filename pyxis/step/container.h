/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the container of a step, and closes it at the step's end. It runs in the step's first task on a
 * node, as the user. */
#ifndef PYXIS_CONTAINER_H
#define PYXIS_CONTAINER_H

#include "container_state.h"

/* Fills what comes after `say`. Returns 0, or -1 with `err` and what enroot said in `log`. */
int pyxis_container_open(struct pyxis_container *container, char *const *job, struct jail_error *err);

/* What is known of the step's tasks after the last of them. */
struct pyxis_outcome {
	bool complete; /* all had started */
	unsigned over; /* bit I: the job leftovers.jobs[I] has ended */
};

/* After the last task: exports it if that is asked for and all had started, removes what was the step's, tells the
 * importer, and removes what ended jobs have left. */
void pyxis_container_close(struct pyxis_container *container, struct pyxis_outcome outcome);

#endif
