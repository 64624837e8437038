/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of slurm.conf that do not work together with the jail. */
#ifndef JAIL_CONFIGURATION_H
#define JAIL_CONFIGURATION_H

#include "native/base/error.h"

/* Looks at the configuration of the slurmd or slurmstepd that loaded the plugin. Returns 0 or -1. */
int jail_configuration_check(struct jail_error *err);

#endif
