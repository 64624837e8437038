/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a step of a job into the jail, in stages, in the order in which Slurm calls the plugin. The functions are in
 * enter_step.c, forks.c and fallback_window.c. */
#ifndef JAIL_ENTER_STEP_H
#define JAIL_ENTER_STEP_H

#include <stdbool.h>

#include "native/base/error.h"
#include "step_state.h"

/* Finds or builds the job's namespaces, takes one for its tasks and opens the window. Called
 * once, as root, in the namespace of slurmd. On -1 no task can enter, the thread is where it was, and the
 * caller opens the fallback window or ends the step. */
int jail_step_open(struct jail_step *step, struct jail_error *err);

/* Builds the job's namespaces for the steps to come, if they are not there, and does no more: for the
 * extern step, which starts before all others and runs nothing. Returns 0 or -1. */
int jail_step_prepare(struct jail_step *step, struct jail_error *err);

/* After jail_step_open failed: opens a window in which Slurm can connect the job's streams, so that the
 * reason can be told there, and in which nothing of the node but its libraries is in reach: the bare
 * jail root, or, where that is the trouble, an empty tmpfs. Returns 1; 0 when `needs_volume` is set and the jail
 * root is the trouble: then nothing was opened; or -1. */
int jail_step_open_fallback(struct jail_step *step, bool needs_volume, struct jail_error *err);

/* Leaves the window; effective uid may be the user's. Returns 0 or -1. */
int jail_step_return(struct jail_step *step, struct jail_error *err);

/* In a fork of slurmstepd that is made for Slurm and not for the user (UnkillableStepProgram) while slurmstepd is in the
 * window: leaves it. */
void jail_step_fork_outside(const struct jail_step *step);

/* At level pid: what the calling thread forks between the two calls is in the step's PID namespace. They
 * may be called as the user. The first does nothing when the step has no such namespace; where it fails,
 * jail_step_enter finds out in the fork. */
void jail_step_fork_begin(const struct jail_step *step);
void jail_step_fork_end(const struct jail_step *step);

/* Puts the calling task (a fork of slurmstepd, root) into the jail for good, and takes from it what root
 * must not do there. Slurm still sets ids and limits after it. Returns 0 or -1. */
int jail_step_enter(struct jail_step *step, struct jail_error *err);

/* The last call before the user's program, as the user: only now are the task's streams where it will
 * find them, and its capabilities needed no more. Returns 0 or -1. */
int jail_step_confine(struct jail_step *step, struct jail_error *err);

#endif
