/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how long slurmstepd waits for srun and sattach that do not answer. It tells them of the start and end of its
 * tasks, each several times. */
#ifndef JAIL_SILENT_CLIENTS_H
#define JAIL_SILENT_CLIENTS_H

#include "native/base/error.h"

/* Bounds how long this step waits for all clients that do not answer: a user stops as many as he likes, and slurmctld drains a
 * node whose step does not end. Returns 0 or -1. */
int jail_clients_guard(struct jail_error *err);

#endif
