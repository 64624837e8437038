/* SPDX-License-Identifier: Apache-2.0 */
/* Who may talk to Slurm's MPI plugins in slurmstepd, which believe what they read: as root, outside.
 *
 * mpi_pmix listens for the slurmstepds of other nodes on a TCP port, and sets memory aside before it looks at who connects; mpi_pmi2
 * listens for them, and for the step's srun, on a Unix socket. Numbers of nodes in what they say are taken as places in memory.
 */
#ifndef JAIL_MPI_PEERS_H
#define JAIL_MPI_PEERS_H

#include <sys/types.h>

#include "native/base/error.h"

/* Lets mpi_*.so hear root alone, and srun of `user` where it answers. By TCP, root is who has one of the ports that nobody in the
 * jail can have; from these mpi_pmix connects. Call it before Slurm starts MPI. Returns 0 or -1. */
int jail_mpi_guard_peers(uid_t user, struct jail_error *err);

#endif
