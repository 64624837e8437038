/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the spelling of CDI device names, such as nvidia.com/gpu=all, in mount plans and specifications. plan.c and
 * native/cdi call it. */
#define _GNU_SOURCE
#include "device_name.h"

#include <stdbool.h>
#include <string.h>

/* Not ctype.h, which asks the locale. */
static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* One part of a name: letters and digits at both ends, `inner` as well between them. */
static bool is_name(const char *part, size_t length, const char *inner)
{
	for (size_t i = 0; i < length; i++)
		if (!is_letter(part[i]) && !(part[i] >= '0' && part[i] <= '9') &&
		    (i == 0 || i + 1 == length || !strchr(inner, part[i])))
			return false;
	return length > 0;
}

int jail_cdi_name_check(const char *name, struct jail_error *err)
{
	size_t vendor = strcspn(name, "/="), kind = strcspn(name, "=");

	if (name[vendor] == '/' && name[kind] == '=' && kind > vendor && is_letter(name[0]) &&
	    is_letter(name[vendor + 1]) && is_name(name, vendor, "_-.") &&
	    is_name(name + vendor + 1, kind - vendor - 1, "_-") &&
	    is_name(name + kind + 1, strlen(name + kind + 1), "_-.:"))
		return 0;
	return jail_fail(err, NULL, 0, "the target of a cdi line is a CDI device name, vendor/class=device, such as "
			 "nvidia.com/gpu=all");
}
