/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files with lines KEY=VALUE into an environment, and expands ${NAME} in the values. environment.c, launch.c
 * and hooks.c call it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "environment_file.h"

/* Cuts KEY=VALUE in two. NULL with *value "": a line that says nothing; NULL with *value NULL: no assignment. */
static char *cut(char *line, char **value)
{
	line += strspn(line, " \t");
	if (text_starts(line, "export "))
		line += strlen("export ");
	size_t key = strcspn(line, "=");
	*value = line + strlen(line);
	if (!*line || *line == '#' || *line == '\r')
		return NULL;
	*value = line[key] && key ? line + key + 1 : NULL;
	if (!*value)
		return NULL;
	line[key] = '\0';
	(*value)[strcspn(*value, "\r")] = '\0';
	return line;
}

int environment_read(struct variables *environment, const char *text, const char *name,
		     const struct expand_request *variables, struct jail_error *err)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line, *value;

	for (int number = 1; (line = strsep(&rest, "\n")); number++) {
		const char *key = cut(line, &value);
		if (!value) {
			jail_fail(err, NULL, 0, "\"%.64s\" is no line of the form KEY=VALUE", line);
			return jail_error_at(err, name, number, NULL);
		}
		if (!key)
			continue;
		scoped_free char *expanded = variables ? expand(value, variables, err) : NULL;
		if (variables && !expanded)
			return jail_error_at(err, name, number, NULL);
		variables_set(environment, key, expanded ? expanded : value);
	}
	return 0;
}

static char *unquote(char *value)
{
	size_t length = strlen(value);

	while (length && strchr(" \t", value[length - 1]))
		value[--length] = '\0';
	if (length < 2 || (*value != '"' && *value != '\'') || value[length - 1] != *value)
		return value;
	value[length - 1] = '\0';
	return value + 1;
}

void environment_read_image(struct variables *environment, const char *text, const char *name,
			    enum environment_form form)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line, *value;

	for (int number = 1; (line = strsep(&rest, "\n")); number++) {
		const char *key = cut(line, &value);
		if (!value)
			report_warning("%s:%d: left out: it is no line of the form KEY=VALUE", name, number);
		else if (key)
			variables_set(environment, key, form == ENVIRONMENT_QUOTED ? unquote(value) : value);
	}
}
