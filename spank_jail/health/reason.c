/* SPDX-License-Identifier: Apache-2.0 */
/* Writes and parses the reasons of drains by node-health, so that it does not take others' drains for its own.
 * controller.c and drain.c call it. */
#define _GNU_SOURCE
#include "reason.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define REASON_MARK "[cellblock:"
#define INSTANCE ", instance "
#define TIME_FORMAT "%Y-%m-%dT%H:%M:%SZ"

void health_reason_write(const struct health_reason *reason, const char *text, char *buffer, size_t size)
{
	char when[32];
	time_t at = (time_t)reason->at;
	struct tm tm;

	strftime(when, sizeof(when), TIME_FORMAT, gmtime_r(&at, &tm));
	snprintf(buffer, size, REASON_MARK "%s] %s" INSTANCE "%s, %s", reason->check, text, reason->instance, when);
}

/* The last place of `part` in `text`, or NULL. */
static const char *last(const char *text, const char *part)
{
	const char *found = NULL;

	for (const char *next = text; (next = strstr(next, part)); next++)
		found = next;
	return found;
}

bool health_reason_read(const char *text, struct health_reason *reason)
{
	const char *name = text + sizeof(REASON_MARK) - 1, *end, *instance, *comma;
	struct tm tm = { 0 };

	if (strncmp(text, REASON_MARK, sizeof(REASON_MARK) - 1) || !(end = strchr(name, ']')) ||
	    (size_t)(end - name) >= sizeof(reason->check))
		return false;
	snprintf(reason->check, sizeof(reason->check), "%.*s", (int)(end - name), name);
	if (!(instance = last(end, INSTANCE)))
		return false;
	instance += sizeof(INSTANCE) - 1;
	comma = strchr(instance, ',');
	if (!comma || (size_t)(comma - instance) >= sizeof(reason->instance) || comma[1] != ' ')
		return false;
	snprintf(reason->instance, sizeof(reason->instance), "%.*s", (int)(comma - instance), instance);
	const char *rest = strptime(comma + 2, TIME_FORMAT, &tm);
	if (!rest || *rest)
		return false;
	reason->at = (long long)timegm(&tm);
	return true;
}
