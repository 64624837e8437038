/* SPDX-License-Identifier: Apache-2.0 */
/* The reason of a drain by node-health: [cellblock:CHECK] TEXT, instance ID, TIME. */
#ifndef NODE_HEALTH_REASON_H
#define NODE_HEALTH_REASON_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"

struct health_reason {
	char check[HEALTH_NAME_SIZE];
	char instance[64];
	long long at; /* Unix time */
};

/* `buffer` is always terminated. */
void health_reason_write(const struct health_reason *reason, const char *text, char *buffer, size_t size);

/* Whether `text` is such a reason. Read from its end: what a check says in between may hold anything. */
bool health_reason_read(const char *text, struct health_reason *reason);

#endif
