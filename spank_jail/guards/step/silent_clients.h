/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds slurmstepd's wait for srun and sattach, which it tells of the start and the end of its tasks, each several times
 * when it does not answer. */
#ifndef JAIL_SILENT_CLIENTS_H
#define JAIL_SILENT_CLIENTS_H

#include "native/base/error.h"

/* Bounds how long this step waits for all clients that do not answer: a user stops as many as he likes, and slurmctld drains a
 * node whose step does not end. Returns 0 or -1. */
int jail_clients_guard(struct jail_error *err);

#endif
