/* SPDX-License-Identifier: Apache-2.0 */
/* Logs notices about a step's jail, such as mounts that were left out, and sets environment variables of its tasks.
 * plugin.c calls it. */
#define _GNU_SOURCE
#include "step_notices.h"

#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"

static void notice(void *context, const char *text)
{
	(void)context;
	slurm_verbose(JAIL_LOG_NAME "%s", text);
}

/* What cdi lines of the plan set: the specification decides, as for any runtime of CDI. */
static void set_variable(void *context, const char *text)
{
	char name[256];
	const char *value = strchr(text, '=');

	if (value && snprintf(name, sizeof(name), "%.*s", (int)(value - text), text) < (int)sizeof(name))
		(void)spank_setenv(context, name, value + 1, 1);
}

void jail_step_hear(struct jail_step *step, spank_t spank)
{
	step->notice = notice;
	step->variable = set_variable;
	step->context = spank;
	/* slurmstepd's own environment, from slurmd. In the job's, it is still what the user set. */
	step->node = getenv("SLURMD_NODENAME");
}
