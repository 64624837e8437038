/* SPDX-License-Identifier: Apache-2.0 */
/* Logs notices about a step's jail, such as mounts that were left out, and sets environment variables
 * of its tasks. */
#ifndef JAIL_STEP_NOTICES_H
#define JAIL_STEP_NOTICES_H

#include <slurm/spank.h>

#include "step_state.h"

/* Has notices go to Slurm's log, and variables to the tasks of `spank`. */
void jail_step_hear(struct jail_step *step, spank_t spank);

#endif
