/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the names of the levels of isolation: filesystem, capabilities and pid. spank_jail calls it. */
#define _GNU_SOURCE
#include "isolation_level.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {
	[JAIL_LEVEL_FILESYSTEM] = "filesystem",
	[JAIL_LEVEL_CAPABILITIES] = "capabilities",
	[JAIL_LEVEL_PID] = "pid",
};
#define N_LEVELS (sizeof(names) / sizeof(names[0]))

int jail_level_parse(const char *name, enum jail_level *level)
{
	for (size_t i = 0; i < N_LEVELS; i++) {
		if (strcmp(name, names[i]))
			continue;
		*level = (enum jail_level)i;
		return 0;
	}
	return -1;
}

const char *jail_level_name(enum jail_level level)
{
	return (size_t)level < N_LEVELS ? names[level] : "?";
}
