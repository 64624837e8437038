/* SPDX-License-Identifier: Apache-2.0 */
/* Checks slurm.conf for settings that cannot be had with the jail. plugin.c calls it. */
#define _GNU_SOURCE
#include "configuration.h"

#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdint.h>

/* UsePAM makes slurmstepd open a PAM session inside the window, with whatever modules are configured. */
int jail_configuration_check(struct jail_error *err)
{
#ifdef CONF_FLAG_PAM
	const uint64_t flag = CONF_FLAG_PAM;
#else
	const uint64_t flag = CTL_CONF_PAM; /* its name up to Slurm 23 */
#endif
	const slurm_conf_t *configuration = dlsym(RTLD_DEFAULT, "slurm_conf");

	if (!configuration || !(configuration->conf_flags & flag))
		return 0;
	return jail_fail(err, NULL, 0, "UsePAM=1 in slurm.conf cannot be had together with the jail: slurmstepd would "
			 "open PAM sessions while it visits the jail; set UsePAM=0");
}
