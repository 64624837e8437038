/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a container what MPI needs of PMIx (PMIx Standard 5.0), whose server is in slurmstepd (mpi/pmix), outside the
 * container. docs/decisions/pyxis-mpi.md says what was found out, and how. */
#ifndef PYXIS_PMIX_H
#define PYXIS_PMIX_H

#include "pyxis/options/arguments.h"
#include "runtime.h"

/* Adds what a container must show for it: where server and processes meet, and, where the user is root in the container
 * (`remapped`), munge's socket. Nothing where `job`, the task's environment, knows of no server. */
void pyxis_pmix_places(char *const *job, const struct pyxis_owner *owner, bool remapped, struct text_list *places);

/* In the container: adds what must change in the variables of `task`, as pairs. */
void pyxis_pmix_environment(char *const *task, bool remapped, struct text_list *changes);

#endif
