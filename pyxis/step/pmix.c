/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a container what MPI needs of PMIx, whose server is in slurmstepd outside: variables and directories.
 * container.c and pyxis/slurm call it. */
#define _GNU_SOURCE
#include "pmix.h"

#include <unistd.h>

#include "native/base/argument.h"
#include "native/base/scoped.h"
#include "implicit_mounts.h"

/* The server's own directory, with its files of shared memory. */
#define DIRECTORY "PMIX_SERVER_TMPDIR"
/* How a process may prove to be the user's: the server's list, of which the process takes the first that it can do. */
#define PROOFS "PMIX_SECURITY_MODE"
/* How a process gets the job's data: an MCA parameter, as any of PMIx's. */
#define DATA "PMIX_MCA_gds"

void pyxis_pmix_places(char *const *job, const struct pyxis_owner *owner, bool remapped, struct text_list *places)
{
	const char *directory = jail_value_in(job, DIRECTORY);

	if (!directory)
		return;
	/* Of the processes of one node: Slurm calls it so, from 23.02 on in the first way. */
	scoped_free char *newer = text_format("/tmp/spmix_appdir_%u_%u.%u", owner->uid, owner->job, owner->step);
	scoped_free char *older = text_format("/tmp/spmix_appdir_%u.%u", owner->job, owner->step);
	pyxis_implicit_mounts_add(directory, "", places);
	pyxis_implicit_mounts_add(newer, "", places);
	pyxis_implicit_mounts_add(older, "", places);
	if (remapped)
		pyxis_implicit_mounts_add("/run/munge", ":ro", places);
}

void pyxis_pmix_environment(char *const *task, bool remapped, struct text_list *changes)
{
	const char *directory = jail_value_in(task, DIRECTORY);

	if (!directory)
		return;
	/* "native" is the uid that the process says to have: 0, which the server takes for a lie. It hangs up, MPI asks
	 * again, and the server never answers. munge asks the kernel. A process that cannot do it ends with an error. */
	if (remapped)
		text_list_add(changes, PROOFS "=munge");
	/* Of a container that ran before this step: its processes ask the server instead. */
	if (access(directory, F_OK) && !jail_value_in(task, DATA))
		text_list_add(changes, DATA "=hash");
}
