/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the value of "key=value" in an argument of a plugin or in a list of environment variables. */
#ifndef JAIL_ARGUMENT_H
#define JAIL_ARGUMENT_H

#include <stddef.h>
#include <string.h>

/* The value when `argument` is "key=value", else NULL. */
static inline const char *jail_value_of(const char *argument, const char *key)
{
	size_t length = strlen(key);

	return !strncmp(argument, key, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

/* The value of `key` among pairs as execve(2) takes them; `pairs` may be NULL. NULL: not there. */
static inline const char *jail_value_in(char *const *pairs, const char *key)
{
	const char *value = NULL;

	for (; pairs && *pairs && !value; pairs++)
		value = jail_value_of(*pairs, key);
	return value;
}

#endif
