/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the file .credentials, whose lines are those of .netrc: "machine HOST login USER password PASS".
 * credential_search.c calls it. */
#define _GNU_SOURCE
#include "netrc.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SEPARATORS " \t\r\n"

struct reader {
	const char *at;
	int line;
};

/* The next word, which the caller frees; NULL: the end. A value may begin with "#", where a keyword would be a remark. */
static char *next_word(struct reader *reader, bool is_value)
{
	scoped_buffer text = { 0 };
	int depth = 0;

	for (;;) {
		for (; *reader->at && strchr(SEPARATORS, *reader->at); reader->at++)
			reader->line += *reader->at == '\n';
		if (*reader->at != '#' || is_value)
			break;
		reader->at += strcspn(reader->at, "\n");
	}
	if (!*reader->at)
		return NULL;
	if (*reader->at == '"') {
		for (reader->at++; *reader->at && *reader->at != '"' && *reader->at != '\n'; reader->at++) {
			if (*reader->at == '\\' && reader->at[1] && reader->at[1] != '\n')
				reader->at++;
			text_append(&text, reader->at, 1);
		}
		reader->at += *reader->at == '"';
		return text_copy(text.text ? text.text : "", text.length);
	}
	/* $(aws ecr get-login-password --region eu) is one word. */
	bool command = text_starts(reader->at, "$(");
	for (; *reader->at && *reader->at != '\n'; reader->at++) {
		if (!depth && strchr(SEPARATORS, *reader->at))
			break;
		if (command)
			depth += (*reader->at == '(') - (*reader->at == ')');
		text_append(&text, reader->at, 1);
	}
	return text_copy(text.text, text.length);
}

void netrc_entry_free(struct netrc_entry *entry)
{
	free(entry->login);
	free(entry->password);
	*entry = (struct netrc_entry){ 0 };
}

static bool fits(const struct netrc_entry *entry, bool here, const char *user)
{
	return here && (!user || !*user || (entry->login && !strcmp(entry->login, user)));
}

int netrc_find(struct netrc_entry *entry, const char *text, const char *host, const char *user, struct jail_error *err)
{
	struct reader reader = { .at = text, .line = 1 };
	bool here = false, begun = false;
	char *name;

	*entry = (struct netrc_entry){ 0 };
	while ((name = next_word(&reader, false))) {
		bool machine = !strcmp(name, "machine"), any = !strcmp(name, "default");
		bool login = !strcmp(name, "login"), password = !strcmp(name, "password");
		bool known = machine || any || ((login || password || !strcmp(name, "account")) && begun);
		int line = reader.line;
		if ((machine || any) && fits(entry, here, user)) {
			free(name);
			return 1;
		}
		char *value = known && !any ? next_word(&reader, true) : NULL;
		if (!known || (!any && !value)) {
			/* The word may be a password in the wrong place: it is not shown. */
			jail_fail(err, NULL, 0, known ? "behind \"%s\" nothing stands" :
				  "a word stands where machine, login or password belongs%.0s", known ? name : "");
			err->line = line;
			free(name);
			netrc_entry_free(entry);
			return -1;
		}
		if (machine || any) {
			netrc_entry_free(entry);
			begun = true;
			here = any || !strcasecmp(value, host);
			entry->line = line;
		} else if (login || password) {
			char **to = login ? &entry->login : &entry->password;
			free(*to);
			*to = value;
			value = NULL;
		}
		free(value);
		free(name);
	}
	if (fits(entry, here, user))
		return 1;
	netrc_entry_free(entry);
	return 0;
}
