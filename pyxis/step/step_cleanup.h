/* SPDX-License-Identifier: Apache-2.0 */
/* A process of the user, the keeper, that saves and removes a step's container after its last task on a node.
 *
 * slurmstepd, which is root and outside the jail, runs nothing for that: it only holds pipes. Closing `life` ends the
 * container's own process; a word in `order` tells the keeper, which the first task forked, to begin; `done` ends
 * when it is over. If anything dies on the way, the pipes close.
 */
#ifndef PYXIS_STEP_CLEANUP_H
#define PYXIS_STEP_CLEANUP_H

#include "container.h"

struct pyxis_step_cleanup {
	int life[2], order[2], done[2];
};

#define PYXIS_STEP_CLEANUP_NONE { { -1, -1 }, { -1, -1 }, { -1, -1 } }

/* slurmstepd, before its tasks are forked. Returns 0 or -1. */
int pyxis_step_cleanup_prepare(struct pyxis_step_cleanup *cleanup, struct jail_error *err);

/* The first task, before it enters: forks the keeper. Returns 0 or -1. */
int pyxis_step_cleanup_start(struct pyxis_step_cleanup *cleanup, struct pyxis_container *container, struct jail_error *err);

/* A task that is about to enter, and slurmstepd at its end: lets go of all. */
void pyxis_step_cleanup_leave(struct pyxis_step_cleanup *cleanup);

/* slurmstepd, after the last task: returns when all is done, or Slurm has killed the step. */
void pyxis_step_cleanup_finish(struct pyxis_step_cleanup *cleanup, struct pyxis_outcome outcome);

#endif
