/* SPDX-License-Identifier: Apache-2.0 */
/* Who may talk to Slurm's MPI plugins, which believe what they read: in slurmstepd as root, outside.
 *
 * mpi_pmix listens for the slurmstepds of other nodes on a TCP port, and sets memory aside before it looks at who connects; mpi_pmi2
 * listens for them, and for the step's srun, on a Unix socket, and in srun for slurmstepds on a TCP port. Numbers of nodes in what
 * they say are taken as places in memory.
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
