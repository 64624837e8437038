/* SPDX-License-Identifier: Apache-2.0 */
/* Checks slurm.conf, and the PAM configuration of su, for settings that do not work with the jail. */
#ifndef JAIL_CONFIGURATION_H
#define JAIL_CONFIGURATION_H

#include <stdbool.h>

#include "native/base/error.h"

/* Looks at the configuration of the slurmd or slurmstepd that loaded the plugin. Returns 0 or -1. */
int jail_configuration_check(struct jail_error *err);

/* Whether slurmd's `su - USER`, by which it asks for a user's environment, runs the user's profile outside the jail: su is a node's own,
 * and its PAM configuration has no pam_jail. */
bool jail_configuration_su_is_outside(void);

#endif
