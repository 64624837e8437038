/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the container options and the environment variables of a job through Slurm's SPANK functions. */
#ifndef PYXIS_INPUT_H
#define PYXIS_INPUT_H

#include <slurm/spank.h>
#include <stdbool.h>

#include "pyxis/options/request.h"

/* Makes Slurm know the options. Returns 0 or -1. */
int pyxis_input_register(spank_t spank, struct jail_error *err);

/* What was given, and, for what was not, what the variables of `environment` say. Returns 0 or -1. */
int pyxis_input_read(char *const *environment, struct pyxis_request *request, struct jail_error *err);

/* Slurm's own environment variables of a step, where this job's plugin options arrive a second time. */
#endif
