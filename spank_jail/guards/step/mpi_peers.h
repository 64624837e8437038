/* SPDX-License-Identifier: Apache-2.0 */
/* Lets only slurmstepds, and the step's srun, connect to Slurm's MPI plugins, which trust what they read and run as
 * root.
 *
 * mpi_pmix listens for the slurmstepds of other nodes on a TCP port. mpi_pmi2 listens for them and for srun on a Unix
 * socket, and in srun for slurmstepds on a TCP port. They take numbers of nodes in messages as places in memory.
 */
#ifndef JAIL_MPI_PEERS_H
#define JAIL_MPI_PEERS_H

#include <sys/types.h>

#include "native/base/error.h"

/* Lets them hear root alone, and srun of `user` where it answers. By TCP, root is who has one of the ports that nobody in the jail
 * can have; from these they connect. Call it before Slurm starts MPI. Returns 0 or -1. */
int jail_mpi_guard_peers(uid_t user, struct jail_error *err);

/* The same in srun, which hears slurmstepds alone. */
int jail_mpi_guard_srun(struct jail_error *err);

#endif
