/* SPDX-License-Identifier: Apache-2.0 */
/* Notices about a step's jail: lines of the log, and variables of its tasks. */
#ifndef JAIL_STEP_NOTICES_H
#define JAIL_STEP_NOTICES_H

#include <slurm/spank.h>

#include "step_state.h"

/* Has notices go to Slurm's log, and variables to the tasks of `spank`. */
void jail_step_hear(struct jail_step *step, spank_t spank);

#endif
