/* SPDX-License-Identifier: Apache-2.0 */
/* Expands variables and five allowed commands in the value of a setting, without running a shell. settings.c,
 * enroot/container and native/container call it. */
#define _GNU_SOURCE
#include "expand.h"

#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/variables.h"

/* ${A:-${B:-...}} */
#define MAX_DEPTH 16

struct expansion {
	const struct expand_request *request;
	struct text_buffer out;
	int depth;
	struct jail_error *err;
};

static int expand_into(struct expansion *e, const char *text, size_t length);

static void put_number(struct expansion *e, unsigned long number)
{
	char text[24];

	snprintf(text, sizeof(text), "%lu", number);
	text_append_string(&e->out, text);
}

static unsigned long processors(void)
{
	cpu_set_t set;

	/* Those that this process may use, as nproc(1) counts. */
	return sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned long)CPU_COUNT(&set);
}

static int put_command(struct expansion *e, const char *command, size_t length)
{
	static const char *const known[] = { "id -u", "id -g", "id -un", "nproc" };
	size_t which = 0;

	while (length && *command == ' ') {
		command++;
		length--;
	}
	while (length && command[length - 1] == ' ')
		length--;
	while (which < 4 && (strlen(known[which]) != length || memcmp(known[which], command, length)))
		which++;
	if (which == 4)
		return jail_fail(e->err, NULL, 0, "the command $(%.*s) is not run: no shell reads this file; there are "
				 "$(id -u), $(id -g), $(id -un) and $(nproc). Write the value itself, or set the variable "
				 "in the environment", (int)(length > 64 ? 64 : length), command);
	if (which == 2) {
		const struct passwd *user = getpwuid(geteuid());
		if (user)
			text_append_string(&e->out, user->pw_name);
		else
			put_number(e, geteuid());
		return 0;
	}
	put_number(e, which == 0 ? geteuid() : which == 1 ? getegid() : processors());
	return 0;
}

static const char *value_of(const struct expansion *e, const char *name)
{
	static char uid[16];
	const char *value = e->request->lookup(e->request->context, name);

	/* A variable of the shell, never of the environment. */
	if (!value && e->request->mode == EXPAND_SHELL && (!strcmp(name, "UID") || !strcmp(name, "EUID"))) {
		snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
		return uid;
	}
	return value;
}

static void put_variable(struct expansion *e, const char *name, size_t length)
{
	scoped_free char *copy = text_copy(name, length);
	const char *value = value_of(e, copy);

	if (value)
		text_append_string(&e->out, value);
}

/* The length of NAME, NAME-word or NAME:-word up to the brace that ends it; (size_t)-1: none does. */
static size_t braced(const char *text, size_t length)
{
	int open = 1;

	for (size_t i = 0; i < length; i++) {
		if (text[i] == '{' && i && text[i - 1] == '$')
			open++;
		else if (text[i] == '}' && !--open)
			return i;
	}
	return (size_t)-1;
}

static int put_braced(struct expansion *e, const char *inside, size_t length)
{
	size_t name = 0;

	while (name < length && variables_is_name(inside, name + 1))
		name++;
	const char *rest = inside + name;
	size_t left = length - name;
	if (!name)
		return jail_fail(e->err, NULL, 0, "\"${%.*s}\" names no variable", (int)(length > 64 ? 64 : length), inside);
	if (!left) {
		put_variable(e, inside, name);
		return 0;
	}
	bool colon = rest[0] == ':';
	if (left < 1U + colon || (rest[colon] != '-' && rest[colon] != '+'))
		return jail_fail(e->err, NULL, 0, "\"${%.*s}\": only ${NAME}, ${NAME:-word} and ${NAME:+word} are understood",
				 (int)(length > 64 ? 64 : length), inside);
	scoped_free char *copy = text_copy(inside, name);
	const char *value = value_of(e, copy);
	bool given = value && (!colon || *value);
	if (rest[colon] == '-' && given)
		text_append_string(&e->out, value);
	else if ((rest[colon] == '-') != given)
		return expand_into(e, rest + colon + 1, left - colon - 1);
	return 0;
}

/* At "$"; returns how many bytes were used, or 0 after an error. */
static size_t put_dollar(struct expansion *e, const char *text, size_t length)
{
	if (length > 1 && text[1] == '{') {
		size_t inside = braced(text + 2, length - 2);
		if (inside == (size_t)-1) {
			jail_fail(e->err, NULL, 0, "\"${\" without \"}\"");
			return 0;
		}
		return put_braced(e, text + 2, inside) ? 0 : inside + 3;
	}
	if (e->request->mode != EXPAND_SHELL) {
		text_append(&e->out, "$", 1);
		return 1;
	}
	if (length > 1 && text[1] == '(') {
		const char *end = memchr(text, ')', length);
		if (!end) {
			jail_fail(e->err, NULL, 0, "\"$(\" without \")\"");
			return 0;
		}
		return put_command(e, text + 2, (size_t)(end - text - 2)) ? 0 : (size_t)(end - text + 1);
	}
	size_t name = 0;
	while (name + 1 < length && variables_is_name(text + 1, name + 1))
		name++;
	if (name)
		put_variable(e, text + 1, name);
	else
		text_append(&e->out, "$", 1);
	return name + 1;
}

static int expand_into(struct expansion *e, const char *text, size_t length)
{
	bool shell = e->request->mode == EXPAND_SHELL;
	char quote = '\0';

	if (++e->depth > MAX_DEPTH)
		return jail_fail(e->err, NULL, 0, "variables are nested deeper than %d", MAX_DEPTH);
	for (size_t i = 0; i < length;) {
		char c = text[i];
		if (shell && quote && c == quote) {
			quote = '\0';
			i++;
		} else if (shell && !quote && (c == '"' || c == '\'')) {
			quote = c;
			i++;
		} else if (shell && c == '`' && quote != '\'') {
			return jail_fail(e->err, NULL, 0, "`commands` are not run: no shell reads this file");
		} else if (shell && c == '\\' && quote != '\'' && i + 1 < length) {
			text_append(&e->out, text + i + 1, 1);
			i += 2;
		} else if (c == '$' && quote != '\'') {
			size_t used = put_dollar(e, text + i, length - i);
			if (!used)
				return -1;
			i += used;
		} else {
			text_append(&e->out, text + i, 1);
			i++;
		}
	}
	e->depth--;
	return quote ? jail_fail(e->err, NULL, 0, "the quote %c is not closed", quote) : 0;
}

char *expand(const char *text, const struct expand_request *request, struct jail_error *err)
{
	struct expansion e = { .request = request, .err = err };

	text_append(&e.out, "", 0);
	if (expand_into(&e, text, strlen(text))) {
		text_buffer_free(&e.out);
		return NULL;
	}
	return e.out.text;
}
