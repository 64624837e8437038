/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how many steps a user has on the node at a time. Each is a slurmstepd of root's with 16 threads and 10 MB,
 * which no limit of the user counts, and which stays when its srun is killed. */
#ifndef JAIL_USER_STEPS_H
#define JAIL_USER_STEPS_H

#include <sys/types.h>

#include "native/base/error.h"

/* Takes the place of one step. Returns a descriptor, which has it until it is closed in all processes; -1: there is none left. */
int jail_user_take_step(uid_t user, struct jail_error *err);

#endif
