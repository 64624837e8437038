/* SPDX-License-Identifier: Apache-2.0 */
/* jail-node-counters: prints the numbers that the plugins counted on this node, such as steps in the jail, in
 * Prometheus' text format (version 0.0.4). tell-node-counters, on workers, runs it. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "native/base/node_counters.h"

#define PROGRAM "jail-node-counters"
#define FAILED "cellblock_steps_failed_total"
#define IMAGES "cellblock_image_imports_total"
#define BYTES "cellblock_image_imported_bytes_total"

static const char *const lines[JAIL_NODE_COUNTER_COUNT] = {
	[JAIL_STEPS_ENTERED] = "cellblock_steps_entered_total",
	[JAIL_STEPS_WRONG_OPTION] = FAILED "{reason=\"option\"}",
	[JAIL_STEPS_INSIDE] = FAILED "{reason=\"jail\"}",
	[JAIL_STEPS_SHORTAGE] = FAILED "{reason=\"shortage\"}",
	[JAIL_STEPS_NODE] = FAILED "{reason=\"node\"}",
	[JAIL_NODE_DRAINS] = "cellblock_node_drains_total{check=\"jail\"}",
	[JAIL_IMAGES_FETCHED] = IMAGES "{result=\"fetched\"}",
	[JAIL_IMAGES_CACHED] = IMAGES "{result=\"cached\"}",
	[JAIL_IMAGES_FAILED] = IMAGES "{result=\"failed\"}",
	[JAIL_IMAGE_BYTES_FETCHED] = BYTES "{result=\"fetched\"}",
	[JAIL_IMAGE_BYTES_CACHED] = BYTES "{result=\"cached\"}",
};

int main(int argc, char **argv)
{
	uint64_t values[JAIL_NODE_COUNTER_COUNT] = { 0 };
	const char *file = argc == 2 ? argv[1] : JAIL_NODE_COUNTERS;

	if (argc > 2 || *file == '-') {
		fputs("usage: " PROGRAM " [FILE]\n"
		      "Prints how many steps of this node entered the jail or failed to, and how many images they imported.\n", stderr);
		return 2;
	}
	/* No step yet: none failed. */
	if (jail_node_counters_read(file, values) && errno != ENOENT) {
		fprintf(stderr, PROGRAM ": %s: %s; remove it, and counting begins anew\n", file, strerrordesc_np(errno));
		return 1;
	}
	for (size_t i = 0; i < JAIL_NODE_COUNTER_COUNT; i++)
		printf("%s %" PRIu64 "\n", lines[i], values[i]);
	return fflush(stdout) ? 1 : 0;
}
