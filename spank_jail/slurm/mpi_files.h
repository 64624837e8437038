/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps root's the files and sockets that Slurm's MPI plugins make in slurmd's spool directory, and would give to the
 * user.
 *
 * The spool is outside the jail: a user could fill a directory of his there by sbcast and --output. He could also
 * name a directory himself (SLURM_PMIX_TMPDIR); files there are made with his rights.
 */
#ifndef JAIL_MPI_FILES_H
#define JAIL_MPI_FILES_H

#include <sys/types.h>

#include "native/base/error.h"
#include "enter_step.h"

/* Lets directories and files that an MPI plugin makes in the spool remain root's, whom they are given to, and has it make those
 * elsewhere by the rights of `user`. Call it before Slurm starts MPI. Returns 0 or -1. */
int jail_mpi_guard(uid_t user, struct jail_error *err);

/* Where the spool is; until this is called, and where there is none, nothing is taken for it. `spool` is not copied. */
void jail_mpi_spool(const char *spool);

/* Finds the spool of a step outside the jail. Nothing of the node's becomes the user's but what is made for him in /tmp.
 * Returns 0 or -1. */
int jail_mpi_outside(struct jail_step *outside, struct jail_error *err);

#endif
