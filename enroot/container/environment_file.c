#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "../../spank_jail/core/scoped.h"
#include "environment.h"

int environment_read(struct variables *environment, const char *text, const char *name,
		     const struct expand_request *variables, struct jail_error *err)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line;

	for (int number = 1; (line = strsep(&rest, "\n")); number++) {
		line += strspn(line, " \t");
		if (text_starts(line, "export "))
			line += strlen("export ");
		size_t key = strcspn(line, "=");
		if (!*line || *line == '#' || *line == '\r')
			continue;
		if (!line[key] || !key) {
			jail_fail(err, NULL, 0, "\"%.64s\" is no line of the form KEY=VALUE", line);
			return jail_error_at(err, name, number, NULL);
		}
		line[strcspn(line, "\r")] = '\0';
		scoped_free char *value = variables ? expand(line + key + 1, variables, err) : NULL;
		if (variables && !value)
			return jail_error_at(err, name, number, NULL);
		line[key] = '\0';
		variables_set(environment, line, value ? value : line + key + 1);
	}
	return 0;
}
