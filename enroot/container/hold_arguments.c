/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the value of `start --hold`, which starts a container without a command, and the directory that its image's
 * /etc/rc changes to. It opens no file, so that unit tests and a fuzz target can call it. hold_container.c and
 * enroot/command/start.c call it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "hold_container.h"

int hold_parse(const char *text, struct hold *hold)
{
	char *end, *last;
	long ready = strtol(text, &end, 10);
	long life = *end == ',' ? strtol(end + 1, &last, 10) : -1;

	if (ready <= 2 || life <= 2 || ready > 65535 || life > 65535 || (*last && *last != ','))
		return -1;
	hold->name = *last ? last + 1 : "";
	hold->ready = (int)ready;
	hold->life = (int)life;
	hold->program = -1;
	return fcntl(hold->ready, F_SETFD, FD_CLOEXEC) || fcntl(hold->life, F_SETFD, FD_CLOEXEC) ? -1 : 0;
}

/* The word at `text` as a shell reads it; NULL where that takes a shell. */
static char *word(const char *text)
{
	scoped_buffer value = { 0 };
	char quote = '\0';

	text_append(&value, "", 0);
	for (; *text && *text != '\n'; text++) {
		if (quote != '\'' && (*text == '$' || *text == '`'))
			return NULL;
		if (*text == quote) {
			quote = '\0';
		} else if (!quote && (*text == '"' || *text == '\'')) {
			quote = *text;
		} else if (!quote && strchr(" \t;&|", *text)) {
			break;
		} else {
			/* Within double quotes it escapes these alone. */
			if (*text == '\\' && quote != '\'' && text[1] && text[1] != '\n' && (!quote || strchr("\"\\$`", text[1])))
				text++;
			text_append(&value, text, 1);
		}
	}
	if (quote || !value.length || value.text[0] != '/')
		return NULL;
	return text_copy(value.text, value.length);
}

char *hold_directory(const char *rc)
{
	for (const char *line = rc; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *end = line + strcspn(line, "\n");
		for (const char *at = line + strspn(line, " \t"); at < end; at++) {
			if (*line == '#')
				break;
			bool begins = at == line || strchr(" \t;&", at[-1]);
			if (!begins || !text_starts(at, "cd "))
				continue;
			at += strlen("cd ");
			at += text_starts(at, "-- ") ? strlen("-- ") : 0;
			return word(at + strspn(at, " \t"));
		}
	}
	return NULL;
}
