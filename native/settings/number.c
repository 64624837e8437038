/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and converts settings that are numbers, sizes, times, or yes and no. settings.c, enroot/importing and
 * native/cache call it. */
#define _GNU_SOURCE
#include "number.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool settings_means_yes(const char *value)
{
	static const char *const no[] = { "", "no", "n", "false", "f" };

	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		if (!strcasecmp(value, no[i]))
			return false;
	return true;
}

/* Seconds: some 30 years, so that milliseconds of it fit into 64 bits with much to spare. */
#define LONGEST_S 1000000000L

static const struct { const char *key; long least, most; } numbers[] = {
	{ "ENROOT_MAX_PROCESSORS", 1, 65536 },
	{ "ENROOT_MAX_CONNECTIONS", 1, 10000 },
	{ "ENROOT_CONNECT_TIMEOUT", 0, LONGEST_S },
	{ "ENROOT_TRANSFER_TIMEOUT", 0, LONGEST_S },
	{ "ENROOT_TRANSFER_RETRIES", 0, 1000000 },
	{ "ENROOT_CACHE_PATIENCE", 0, LONGEST_S },
	{ "ENROOT_CACHE_WAIT", 0, LONGEST_S },
	{ "ENROOT_CACHE_MAX_SHARE", 0, 100 },
};

long long number_size(const char *text)
{
	static const char units[] = "KMGTP";
	char *end;
	long long number;

	errno = 0;
	number = strtoll(text, &end, 10);
	if (end == text || number < 0 || errno || text[0] < '0' || text[0] > '9')
		return -1;
	const char *unit = *end ? strchr(units, *end >= 'a' ? *end - 32 : *end) : NULL;
	if (*end && !unit)
		return -1;
	if (unit && end[1] && strcmp(end + 1, "B") && strcmp(end + 1, "iB"))
		return -1;
	for (const char *each = units; unit && each <= unit; each++) {
		if (number > LLONG_MAX / 1024)
			return -1;
		number *= 1024;
	}
	return number;
}

int number_check(const char *key, const char *value, struct jail_error *err)
{
	char *end;

	if (!settings_means_yes(value))
		return 0;
	if (!strcmp(key, "ENROOT_CACHE_MAX_SIZE") && number_size(value) < 0)
		return jail_fail(err, NULL, 0, "%s is \"%.64s\": it takes bytes, as 500M, 20G or 1T; 0 sets no limit", key, value);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(key, numbers[i].key))
			continue;
		errno = 0;
		long number = strtol(value, &end, 10);
		if (*end || errno || *value < '0' || *value > '9' || number < numbers[i].least || number > numbers[i].most)
			return jail_fail(err, NULL, 0, "%s is \"%.64s\": it takes a whole number from %ld to %ld; correct it, or remove it "
					 "for the default", key, value, numbers[i].least, numbers[i].most);
	}
	return 0;
}
