/* SPDX-License-Identifier: Apache-2.0 */
/* jail-step-counters: prints what the plugin counted on this node, in Prometheus' text format (version 0.0.4).
 * tell-step-counters, on workers, runs it. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "spank_jail/job/step_counters.h"

#define PROGRAM "jail-step-counters"
#define FAILED "cellblock_steps_failed_total"

static const char *const lines[JAIL_STEP_COUNTER_COUNT] = {
	[JAIL_STEPS_ENTERED] = "cellblock_steps_entered_total",
	[JAIL_STEPS_WRONG_OPTION] = FAILED "{reason=\"option\"}",
	[JAIL_STEPS_INSIDE] = FAILED "{reason=\"jail\"}",
	[JAIL_STEPS_SHORTAGE] = FAILED "{reason=\"shortage\"}",
	[JAIL_STEPS_NODE] = FAILED "{reason=\"node\"}",
};

int main(int argc, char **argv)
{
	uint64_t values[JAIL_STEP_COUNTER_COUNT] = { 0 };
	const char *file = argc == 2 ? argv[1] : JAIL_STEP_COUNTERS;

	if (argc > 2 || *file == '-') {
		fputs("usage: " PROGRAM " [FILE]\nPrints how many steps of this node entered the jail or failed to.\n", stderr);
		return 2;
	}
	/* No step yet: none failed. */
	if (jail_step_counters_read(file, values) && errno != ENOENT) {
		fprintf(stderr, PROGRAM ": %s: %s; remove it, and counting begins anew\n", file, strerrordesc_np(errno));
		return 1;
	}
	for (size_t i = 0; i < JAIL_STEP_COUNTER_COUNT; i++)
		printf("%s %" PRIu64 "\n", lines[i], values[i]);
	return fflush(stdout) ? 1 : 0;
}
