/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates passwords in the file .credentials that are written as a variable or a
 * command. credential_search.c calls it. */
#define _GNU_SOURCE
#include "password.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/program.h"
#include "native/base/variables.h"

/* The length of "$NAME" or "${NAME}" at `text`, whose name is put into `name`; 0: it is no variable. */
static size_t variable(const char *text, char name[128])
{
	bool brace = text[1] == '{';
	const char *start = text + 1 + brace;
	size_t length = strspn(start, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

	if (length >= 128 || !variables_is_name(start, length) || (brace && start[length] != '}'))
		return 0;
	memcpy(name, start, length);
	name[length] = '\0';
	return 1 + 2 * (size_t)brace + length;
}

static int add_variable(struct text_buffer *word, const char **at, struct jail_error *err)
{
	char name[128];
	size_t length = variable(*at, name);
	const char *value = length ? getenv(name) : NULL;

	if (!length)
		return jail_fail(err, NULL, 0, "its command has a \"$\" that begins no variable; it runs without a shell");
	if (!value)
		return jail_fail(err, NULL, 0, "the variable %s is not set", name);
	text_append_string(word, value);
	*at += length;
	return 0;
}

/* The words between `text` and `end`. */
static int split(struct text_list *words, const char *text, const char *end, struct jail_error *err)
{
	while (text < end) {
		scoped_buffer word = { 0 };
		char quote = '\0';
		text += strspn(text, " \t");
		if (text >= end)
			break;
		while (text < end && (quote || !strchr(" \t", *text))) {
			if (*text == quote || (!quote && strchr("'\"", *text))) {
				quote = quote ? '\0' : *text;
				text++;
			} else if (*text == '$' && quote != '\'') {
				if (add_variable(&word, &text, err))
					return -1;
			} else if (!quote && strchr("|;&<>`()*?[]{}~\\", *text)) {
				return jail_fail(err, NULL, 0, "its command has a \"%c\", and runs without a shell: name a program "
						 "and its arguments, or put them into a script", *text);
			} else {
				text_append(&word, text++, 1);
			}
		}
		if (quote)
			return jail_fail(err, NULL, 0, "its command has a quote without an end");
		text_list_add(words, word.text ? word.text : "");
	}
	return words->n ? 0 : jail_fail(err, NULL, 0, "its command is empty");
}

static char *run_command(const char *text, const char *end, unsigned seconds, struct jail_error *err)
{
	scoped_list words = { 0 };
	scoped_buffer output = { 0 };

	if (split(&words, text, end, err))
		return NULL;
	const struct program program = { .arguments = words.items, .output = &output, .seconds = seconds,
					 .most = PASSWORD_OUTPUT_MOST };
	int status = program_run(&program, err);
	if (status < 0 && err->number == ETIMEDOUT)
		jail_fail(err, NULL, 0, "%s had no end after %u s (ENROOT_CONNECT_TIMEOUT), and was ended", words.items[0], seconds);
	if (status > 0)
		jail_fail(err, NULL, 0, "%s failed with status %d", words.items[0], status);
	if (status)
		return NULL;
	while (output.length && strchr("\r\n", output.text[output.length - 1]))
		output.text[--output.length] = '\0';
	if (!output.length) {
		jail_fail(err, NULL, 0, "%s printed nothing", words.items[0]);
		return NULL;
	}
	return text_copy(output.text, output.length);
}

char *password_evaluate(const char *text, unsigned seconds, struct jail_error *err)
{
	size_t length = strlen(text);
	char name[128];

	if (text_starts(text, "$(") && text[length - 1] == ')')
		return run_command(text + 2, text + length - 1, seconds, err);
	if (*text == '$' && variable(text, name) == length) {
		const char *value = getenv(name);
		if (value && *value)
			return text_copy(value, strlen(value));
		jail_fail(err, NULL, 0, "the variable %s is not set", name);
		return NULL;
	}
	return text_copy(text, length);
}
