/* SPDX-License-Identifier: Apache-2.0 */
/* Lengthens the arrays in which a finished step reports what it used, to the length that slurmctld reads. */
#ifndef JAIL_STEP_ARRAYS_H
#define JAIL_STEP_ARRAYS_H

#include <link.h>

#include "native/base/error.h"

/* Lets Slurm's library `libslurm` fill up arrays of a message that are too short, which may be a user's. Returns 0; 1 when it reads them
 * in an unknown way; -1. */
int jail_step_arrays_guard(const struct link_map *libslurm, struct jail_error *err);

#endif
