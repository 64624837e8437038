/* SPDX-License-Identifier: Apache-2.0 */
/* The jail's SPANK plugin in srun: installs the guard of srun's MPI server before tasks are launched. It is in the
 * same library as plugin.c; srun calls it. */
#define _GNU_SOURCE
#include <slurm/spank.h>

#include "spank_jail/guards/step/mpi_peers.h"
#include "failure.h"

__attribute__((visibility("default"))) spank_f slurm_spank_local_user_init;

/* Before tasks are launched; srun has loaded its MPI plugin by now. */
int slurm_spank_local_user_init(spank_t spank, int ac, char *av[])
{
	struct jail_error err;

	(void)spank;
	(void)ac;
	(void)av;
	return jail_mpi_guard_srun(&err) ? jail_failure_report(&err) : ESPANK_SUCCESS;
}
