/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the process that cleans up after a step's container, as soon as there is something to clean up. It also
 * finds the cluster's name. container.c, image.c, save.c and pyxis/slurm/plugin.c call it. */
#define _GNU_SOURCE
#include "container_state.h"

const char *pyxis_container_cluster(const struct pyxis_container *container)
{
	const char *name = variables_get(&container->environment, "SLURM_CLUSTER_NAME");

	return name ? name : "";
}

int pyxis_container_keep(struct pyxis_container *container, struct jail_error *err)
{
	bool needed = container->request->save || container->temporary || container->asked || container->leftovers.n;

	if (!needed || container->kept || !container->keep)
		return 0;
	container->kept = true;
	return container->keep(container, err);
}
