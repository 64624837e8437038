/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that the plugins count on a node for its metrics, such as steps that entered the
 * jail, drains, and images. */
#ifndef JAIL_NODE_COUNTERS_H
#define JAIL_NODE_COUNTERS_H

#include <stdint.h>

/* Of this node since it started; root's alone to write. One number of 8 bytes for each counter, in their order. */
#define JAIL_NODE_COUNTERS "/run/cellblock/node-counters"

enum jail_node_counter {
	JAIL_STEPS_ENTERED,
	JAIL_STEPS_WRONG_OPTION, /* an option of the job is wrong */
	JAIL_STEPS_INSIDE,       /* what users wrote in the jail keeps them out */
	JAIL_STEPS_SHORTAGE,     /* processes, mounts or memory have run out for now */
	JAIL_STEPS_NODE,         /* the node is at fault */
	JAIL_NODE_DRAINS,        /* by the jail's plugin, for that */
	/* Of containers' images. Their files are squashfs; bytes are as users' processes tell them. */
	JAIL_IMAGES_FETCHED,
	JAIL_IMAGES_CACHED,
	JAIL_IMAGES_FAILED,
	JAIL_IMAGE_BYTES_FETCHED,
	JAIL_IMAGE_BYTES_CACHED,
	JAIL_NODE_COUNTER_COUNT
};

/* Maps the counters of `file`, and makes it where there is none. Without a file nothing is counted: that is no
 * reason to fail a step. Not for children: those run for users. */
void jail_node_counters_open(const char *file);

void jail_node_count(enum jail_node_counter which, uint64_t amount);

/* Reads them all. Returns 0, or -1 with errno. */
int jail_node_counters_read(const char *file, uint64_t values[JAIL_NODE_COUNTER_COUNT]);

#endif
