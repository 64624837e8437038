/* SPDX-License-Identifier: Apache-2.0 */
/* Checks single fields of passwd, group and shadow lines that come from the jail. account_records.c calls it. */
#define _GNU_SOURCE
#include "account_fields.h"

#include <stdint.h>
#include <string.h>

#include "account_limits.h"

bool account_number(const char *text, unsigned long max, unsigned long *number)
{
	unsigned long value = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (unsigned long)(*text - '0');
		if (value > max)
			return false;
	}
	*number = value;
	return true;
}

bool account_id_is_ordinary(unsigned long id)
{
	return id >= ACCOUNTS_FIRST_ID && id <= ACCOUNTS_LAST_ID &&
	       !(id >= ACCOUNTS_RESERVED_FIRST && id <= ACCOUNTS_RESERVED_LAST);
}

bool account_name_is_good(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
	static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
	static const char more[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789.@-";
	size_t length = strlen(name);

	if (!length || length > ACCOUNTS_NAME_MAX || !strpbrk(name, letters) || !strchr(first, name[0]))
		return false;
	size_t good = strspn(name, more);
	return good == length || (good == length - 1 && name[good] == '$');
}

bool account_path_is_good(const char *path)
{
	size_t length;

	if (*path != '/')
		return false;
	for (; *path; path += length) {
		path += strspn(path, "/");
		length = strcspn(path, "/");
		if (length == 2 && path[0] == '.' && path[1] == '.')
			return false;
	}
	return true;
}

bool account_has_control(const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)bytes[i] < ' ' || bytes[i] == 0x7f)
			return true;
	return false;
}

bool account_split(char *line, char **fields, int n)
{
	int found = 0;

	while (line && found < n)
		fields[found++] = strsep(&line, ":");
	return found == n && !line;
}

bool account_age_is_good(const char *field)
{
	unsigned long number;

	return !*field || !strcmp(field, "-1") || account_number(field, INT32_MAX, &number);
}
