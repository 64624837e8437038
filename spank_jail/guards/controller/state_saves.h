/* SPDX-License-Identifier: Apache-2.0 */
/* Makes slurmctld save its state soon after a change instead of up to five seconds later. */
#ifndef JAIL_STATE_SAVES_H
#define JAIL_STATE_SAVES_H

#include <stdbool.h>

#include "native/base/error.h"

/* Lets slurmctld, the program that calls this, save a change at once instead of five seconds after the save before, as long as
 * saving takes it at most a tenth of a processor; then later, at the latest after those five seconds.
 * Returns 0; 1 when it saves in an unknown way; -1. */
int jail_saves_hasten(struct jail_error *err);

/* Whether, of two controllers, another host's acts. */
bool jail_saves_another_acts(void);

/* Whether slurmctld has read all that it starts with. */
bool jail_saves_have_begun(void);

#endif
