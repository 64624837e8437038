/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps a list of KEY=VALUE pairs: settings of enroot, or the environment of a container. enroot/, other libraries in
 * native/ and pyxis/ call it. */
#define _GNU_SOURCE
#include "variables.h"

#include <stdlib.h>
#include <string.h>

static char **find(const struct variables *variables, const char *key, size_t length)
{
	for (size_t i = 0; i < variables->list.n; i++)
		if (!strncmp(variables->list.items[i], key, length) && variables->list.items[i][length] == '=')
			return &variables->list.items[i];
	return NULL;
}

const char *variables_get(const struct variables *variables, const char *key)
{
	size_t length = strlen(key);
	char **found = find(variables, key, length);

	return found ? *found + length + 1 : NULL;
}

void variables_set_pair(struct variables *variables, const char *pair)
{
	char **found = find(variables, pair, strcspn(pair, "="));

	if (!found) {
		text_list_add(&variables->list, pair);
		return;
	}
	char *copy = text_copy(pair, strlen(pair));
	free(*found);
	*found = copy;
}

void variables_set(struct variables *variables, const char *key, const char *value)
{
	char *pair = text_format("%s=%s", key, value);

	variables_set_pair(variables, pair);
	free(pair);
}

void variables_free(struct variables *variables)
{
	text_list_free(&variables->list);
}

bool variables_is_name(const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		char c = name[i];
		bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
		if (!letter && (i == 0 || c < '0' || c > '9'))
			return false;
	}
	return length > 0;
}

bool variables_is_key(const char *name, size_t length)
{
	for (size_t i = 1; i < length; i++)
		if (name[i] != '.' && name[i] != '-' && name[i] != '_' && !variables_is_name(name + i, 1) &&
		    (name[i] < '0' || name[i] > '9'))
			return false;
	return length > 0 && variables_is_name(name, 1);
}
