/* SPDX-License-Identifier: Apache-2.0 */
/* Adds lines to the text of passwd(5) and group(5) where a name is missing. shadow.c calls it. */
#define _GNU_SOURCE
#include "accounts.h"

#include <string.h>

/* The line of `name` in a file of accounts, or NULL. The caller frees it. */
static char *line_of(const char *text, const char *name)
{
	size_t length = strlen(name);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (!strncmp(line, name, length) && line[length] == ':')
			return text_copy(line, strcspn(line, "\n"));
	return NULL;
}

static void append(struct text_buffer *out, const char *line)
{
	text_append_string(out, line);
	text_append(out, "\n", 1);
}

void accounts_merge(struct text_buffer *out, const struct text_list *first, const char *text)
{
	for (size_t i = 0; i < first->n; i++)
		append(out, first->items[i]);
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t name = strcspn(line, ":\n");
		bool known = false;
		for (size_t i = 0; i < first->n && !known; i++)
			known = strcspn(first->items[i], ":") == name && !strncmp(first->items[i], line, name);
		if (!known && name) {
			text_append(out, line, strcspn(line, "\n"));
			text_append(out, "\n", 1);
		}
	}
}

void accounts_add_known(struct text_list *first, const char *text, const char *name, const char *otherwise)
{
	char *line = line_of(text, name);

	if (line)
		text_list_take(first, line);
	else
		text_list_add(first, otherwise);
}
