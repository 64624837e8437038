/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the header WWW-Authenticate of a 401, by which a registry says how to log in. authorization.c calls it. */
#define _GNU_SOURCE
#include "challenge.h"

#include <string.h>
#include <strings.h>

#define TOKEN "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"
#define BLANKS " \t"

/* The value of a parameter, quoted or not, into `to` (which may be NULL); "" where it does not fit. Returns the place
 * behind it. */
static const char *parameter_value(const char *text, char *to, size_t capacity)
{
	size_t used = 0;
	bool quoted = *text == '"';

	if (quoted)
		text++;
	for (; *text && (quoted ? *text != '"' : !strchr(BLANKS ",", *text)); text++) {
		if (quoted && *text == '\\' && text[1])
			text++;
		if (to && used + 1 < capacity)
			to[used] = *text;
		used++;
	}
	if (to)
		to[used < capacity ? used : 0] = '\0';
	return quoted && *text ? text + 1 : text;
}

static bool is(const char *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && !strncasecmp(name, wanted, length);
}

void challenge_parse(struct challenge *challenge, const char *header)
{
	struct challenge each = { 0 };

	*challenge = (struct challenge){ 0 };
	for (;;) {
		header += strspn(header, BLANKS ",");
		size_t length = strspn(header, TOKEN);
		const char *name = header;
		if (!length) {
			/* What no grammar allows is stepped over. */
			if (*header) {
				header = *header == '"' ? parameter_value(header, NULL, 0) : header + 1;
				continue;
			}
			length = 0;
		}
		header += length;
		const char *next = header + strspn(header, BLANKS);
		if (length && *next == '=') {
			next += 1 + strspn(next + 1, BLANKS);
			char *to = is(name, length, "realm") ? each.realm :
				   is(name, length, "service") ? each.service :
				   is(name, length, "scope") ? each.scope : NULL;
			header = parameter_value(next, to, to == each.service ? sizeof(each.service) : sizeof(each.realm));
			continue;
		}
		/* A word that no "=" follows begins the next challenge; so does the end. */
		if (each.scheme > challenge->scheme)
			*challenge = each;
		if (!length)
			return;
		each = (struct challenge){
			.scheme = is(name, length, "bearer") ? CHALLENGE_BEARER :
				  is(name, length, "basic") ? CHALLENGE_BASIC : CHALLENGE_NONE,
		};
	}
}
