/* SPDX-License-Identifier: Apache-2.0 */
/* What happens after the last task of a step on a node: told by slurmstepd, done by a process of the user.
 *
 * slurmstepd has the outside in reach, so it runs nothing: it holds pipes. Closing `life` ends the container's own
 * process; a word in `order` lets the keeper, which the first task forked where it was, save and remove; `done`
 * ends when that is over. Whatever dies on the way, the pipes close.
 */
#ifndef PYXIS_KEEPER_H
#define PYXIS_KEEPER_H

#include "container.h"

struct pyxis_keeper {
	int life[2], order[2], done[2];
};

#define PYXIS_KEEPER_NONE { { -1, -1 }, { -1, -1 }, { -1, -1 } }

/* slurmstepd, before its tasks are forked. Returns 0 or -1. */
int pyxis_keeper_prepare(struct pyxis_keeper *keeper, struct jail_error *err);

/* The first task, before it enters: forks the keeper. Returns 0 or -1. */
int pyxis_keeper_start(struct pyxis_keeper *keeper, struct pyxis_container *container, struct jail_error *err);

/* A task that is about to enter, and slurmstepd at its end: lets go of all. */
void pyxis_keeper_leave(struct pyxis_keeper *keeper);

/* slurmstepd, after the last task: returns when all is done, or Slurm has killed the step. */
void pyxis_keeper_finish(struct pyxis_keeper *keeper, struct pyxis_outcome outcome);

#endif
