/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes what clients send to slurmdbd, so that no text of theirs becomes part of an SQL query. service_guard.c
 * calls it.
 *
 * slurmdbd escapes only ' and \, but writes names of clusters between " and ids without quotes: "1); update
 * user_table set admin_level=3 ..." as an id makes its sender an administrator. (Slurm's releases of 2026 check
 * these; Debian 12 and Ubuntu have older ones.) Here more characters get a backslash, which the database drops within
 * '...'; a query with one elsewhere is refused.
 */
#define _GNU_SOURCE
#include "queries.h"

#include <string.h>

/* Of these a backslash makes nothing else: not of n, r, t, b, Z, 0, % and _. Texts that slurmdbd itself looks into (numbers of
 * resources, lists of names) have none of these. */
#define ENDS "\"`();"
/* Only a query within the query needs them. In other texts they stay: `sacctmgr show transactions` shows what was written. */
#define BLANKS " \t\n\r\v\f"

size_t jail_queries_escape(const char *text, char *to)
{
	const char *ends = strcasestr(text, "select") ? ENDS BLANKS : ENDS;
	size_t length = 0;

	for (; *text; text++) {
		bool is_pair = *text == '\\' && text[1];
		if (is_pair || strchr(ends, *text)) {
			if (to)
				to[length] = '\\';
			length++;
		}
		text += is_pair;
		if (to)
			to[length] = *text;
		length++;
	}
	if (to)
		to[length] = 0;
	return length;
}

/* At the end of the literal that begins at `text`; at the NUL when it does not end. */
static const char *literal_end(const char *text)
{
	for (text++; *text && *text != '\''; text++)
		if (*text == '\\' && text[1])
			text++;
	return text;
}

static bool is_comment(const char *text)
{
	/* "--" begins one where a blank follows. */
	return *text == '#' || !strncmp(text, "/*", 2) || (!strncmp(text, "--", 2) && (unsigned char)text[2] <= ' ');
}

bool jail_queries_is_sound(const char *query)
{
	bool is_name = false;

	for (; *query; query++) {
		if (*query == '"')
			is_name = !is_name;
		if (*query == '\\' || (!is_name && is_comment(query)))
			return false;
		if (*query == '\'' && !is_name) {
			query = literal_end(query);
			if (!*query)
				return true;
		}
	}
	return true;
}
