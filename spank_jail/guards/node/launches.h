/* SPDX-License-Identifier: Apache-2.0 */
/* Makes forged requests to launch a step harmless. slurmd acts on some of their content before
 * it checks the credential. */
#ifndef JAIL_LAUNCHES_H
#define JAIL_LAUNCHES_H

#include "native/base/error.h"

/* In slurmd. A launch for a job that slurmctld has not announced fails, and does not drain the node; a slurmstepd that is not told
 * all that it needs ends. Returns 0 or -1. */
int jail_launches_guard(struct jail_error *err);

#endif
