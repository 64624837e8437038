/* SPDX-License-Identifier: Apache-2.0 */
/* Lets only the step's own user connect to the PMIx server that `srun --mpi=pmix` starts in slurmstepd. It runs as
 * root, outside the jail, and does what it is asked over TCP. */
#ifndef JAIL_PMIX_H
#define JAIL_PMIX_H

#include <sys/types.h>

#include "native/base/error.h"

/* Lets nobody but `user` talk to the step's PMIx server, and the server remove no files for him. Call it before Slurm
 * starts the server; nothing to do where the step has none. Returns 0 or -1. */
int jail_pmix_guard(uid_t user, struct jail_error *err);

#endif
