/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the time in which slurmctld sends a message to an srun or salloc, or an answer to who does not read it. */
#ifndef JAIL_SRUN_MESSAGES_H
#define JAIL_SRUN_MESSAGES_H

#include <link.h>

#include "native/base/error.h"

/* In slurmctld and its `libslurm`. Returns 0; 1 when it sends such messages in an unknown way; -1. */
int jail_srun_messages_guard(const struct link_map *slurmctld, const struct link_map *libslurm, struct jail_error *err);

#endif
