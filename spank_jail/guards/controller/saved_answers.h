/* SPDX-License-Identifier: Apache-2.0 */
/* Delays slurmctld's answer to a submission until the job is saved on disk, if that takes only a moment. */
#ifndef JAIL_SAVED_ANSWERS_H
#define JAIL_SAVED_ANSWERS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "native/base/error.h"

/* Says, in a thread of slurmctld's, that what it sends next is the answer to a submission. */
void jail_answers_await_save(void);

/* Has slurmctld's answers to submissions wait. Returns 0; -1. */
int jail_answers_delay(const struct link_map *slurmctld, struct jail_error *err);

/* Whether answers wait for a save. */
bool jail_answers_wait(void);

/* Of the thread that saves: the save before has ended. `begins`: another one begins now; else it may at `next`, in nanoseconds of
 * CLOCK_MONOTONIC. */
void jail_answers_note_round(bool begins, int64_t next);

/* Of that thread, which holds its lock: all that it was told of is saved. */
void jail_answers_note_idle(void);

#endif
