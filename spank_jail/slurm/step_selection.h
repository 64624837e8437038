/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a step gets the jail, where the administrator selects some jobs (options/selection.h). */
#ifndef JAIL_STEP_SELECTION_H
#define JAIL_STEP_SELECTION_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "native/base/error.h"
#include "enter_step.h"

/* On the node, once it is known which job and step it is, and whose. By what slurmctld says alone, and what was asked for: nothing of
 * the job's environment. `outside` becomes true for a step that is to run as if there were no plugin. -1: nobody can tell, or what
 * was asked for cannot be had; no task may run. */
int jail_step_selection_make(spank_t spank, struct jail_step *step, bool *outside, struct jail_error *err);

/* In the epilog. Whether the job was outside by such a choice; its mark is removed. */
bool jail_step_selection_was_outside(const struct jail_arguments *arguments, uint32_t job, uid_t user);

#endif
