/* SPDX-License-Identifier: Apache-2.0 */
/* Logs what the plugin reports, each line with the plugin's name before it. epilog.c, input.c and
 * plugin.c call it. */
#define _GNU_SOURCE
#include "log.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"

void pyxis_log_say(const char *line)
{
	scoped_free char *copy = text_copy(line, strlen(line));

	/* In srun, sbatch and salloc it is their log. In a task Slurm's would write it into the node's as well, and users
	 * and their programs would fill that. */
	jail_one_line(copy);
	if (spank_context() != S_CTX_REMOTE)
		slurm_spank_log(PYXIS_NAME_IN_LOG "%s", copy);
	else
		dprintf(STDERR_FILENO, PYXIS_NAME_IN_LOG "%s\n", copy);
}

int pyxis_log_error(const struct jail_error *err)
{
	char line[1400];

	slurm_error(PYXIS_NAME_IN_LOG "%s", jail_error_format(err, line, sizeof(line)));
	return -1;
}
