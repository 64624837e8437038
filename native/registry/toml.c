/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the part of TOML 1.0 that registries.conf uses. registries.c calls it. */
#define _GNU_SOURCE
#include "toml.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/text.h"
#include "toml_string.h"

#define MAX_DEPTH 32
#define BARE "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

static json_t *parse_value(struct toml_reader *reader, int depth);

static json_t *new_table(int line)
{
	json_t *table = json_object();

	json_object_set_new(table, TOML_LINE, json_integer(line));
	return table;
}

int toml_line(const json_t *table)
{
	return (int)json_integer_value(json_object_get(table, TOML_LINE));
}

static void skip_blanks(struct toml_reader *reader)
{
	reader->at += strspn(reader->at, " \t");
}

/* To what comes next, over comments and line ends. */
static void skip_lines(struct toml_reader *reader)
{
	for (;;) {
		skip_blanks(reader);
		if (*reader->at == '#')
			reader->at += strcspn(reader->at, "\n");
		else if (reader->at[0] == '\r' && reader->at[1] == '\n')
			reader->at++;
		else if (*reader->at == '\n') {
			reader->at++;
			reader->line++;
		} else
			return;
	}
}

static int end_of_line(struct toml_reader *reader)
{
	skip_blanks(reader);
	if (*reader->at == '#')
		reader->at += strcspn(reader->at, "\n");
	reader->at += reader->at[0] == '\r' && reader->at[1] == '\n';
	if (*reader->at && *reader->at != '\n')
		return toml_fail(reader, "something stands behind the end of what belongs on this line");
	return 0;
}

/* One part of a key. */
static char *key_part(struct toml_reader *reader)
{
	scoped_buffer text = { 0 };
	size_t length = strspn(reader->at, BARE);

	if (*reader->at == '"' || *reader->at == '\'') {
		if (toml_string(reader, &text))
			return NULL;
		return text_copy(text.text ? text.text : "", text.length);
	}
	if (!length) {
		toml_fail(reader, "a key, or [TABLE], belongs here");
		return NULL;
	}
	reader->at += length;
	return text_copy(reader->at - length, length);
}

/* The table that `key` of `table` names, made where it is missing: the last one of an array of tables. */
static json_t *descend(struct toml_reader *reader, json_t *table, const char *key)
{
	json_t *next = json_object_get(table, key);

	if (!next) {
		next = new_table(reader->line);
		if (!json_object_set_new(table, key, next))
			return next;
		toml_fail(reader, "a key that is no UTF-8");
		return NULL;
	}
	if (json_is_array(next) && json_array_size(next))
		next = json_array_get(next, json_array_size(next) - 1);
	if (json_is_object(next))
		return next;
	toml_fail(reader, "\"%.64s\" is no table, but has a value already", key);
	return NULL;
}

/* Reads a dotted key; `*table` becomes the one that its last part, which is returned, belongs to. */
static char *key_of(struct toml_reader *reader, json_t **table)
{
	char *part = key_part(reader);

	skip_blanks(reader);
	while (part && *reader->at == '.') {
		*table = descend(reader, *table, part);
		free(part);
		reader->at++;
		skip_blanks(reader);
		part = *table ? key_part(reader) : NULL;
		skip_blanks(reader);
	}
	return part;
}

/* KEY = VALUE, into `table`. */
static int pair(struct toml_reader *reader, json_t *table, int depth)
{
	scoped_free char *key = key_of(reader, &table);

	if (!key)
		return -1;
	if (*reader->at != '=')
		return toml_fail(reader, "\"=\" belongs behind the key \"%.64s\"", key);
	if (json_object_get(table, key))
		return toml_fail(reader, "\"%.64s\" stands here a second time", key);
	reader->at++;
	skip_blanks(reader);
	json_t *found = parse_value(reader, depth + 1);
	if (!found)
		return -1;
	return json_object_set_new(table, key, found) ? toml_fail(reader, "a key that is no UTF-8") : 0;
}

static json_t *array(struct toml_reader *reader, int depth)
{
	json_t *items = json_array(), *item;

	reader->at++;
	for (skip_lines(reader); *reader->at != ']'; skip_lines(reader)) {
		item = parse_value(reader, depth + 1);
		if (!item)
			goto failed;
		json_array_append_new(items, item);
		skip_lines(reader);
		if (*reader->at == ',')
			reader->at++;
		else if (*reader->at != ']') {
			toml_fail(reader, "\",\" or \"]\" belongs here");
			goto failed;
		}
	}
	reader->at++;
	return items;
failed:
	json_decref(items);
	return NULL;
}

static json_t *inline_table(struct toml_reader *reader, int depth)
{
	json_t *table = new_table(reader->line);

	reader->at++;
	for (skip_blanks(reader); *reader->at != '}';) {
		if (pair(reader, table, depth))
			goto failed;
		skip_blanks(reader);
		if (*reader->at != ',' && *reader->at != '}') {
			toml_fail(reader, "\",\" or \"}\" belongs here");
			goto failed;
		}
		if (*reader->at == ',') {
			reader->at++;
			skip_blanks(reader);
		}
	}
	reader->at++;
	return table;
failed:
	json_decref(table);
	return NULL;
}

static json_t *parse_word(struct toml_reader *reader)
{
	size_t length = strspn(reader->at, BARE "+.:");
	scoped_free char *text = text_copy(reader->at, length);
	char *end;

	reader->at += length;
	if (!strcmp(text, "true") || !strcmp(text, "false"))
		return json_boolean(!strcmp(text, "true"));
	errno = 0;
	long long number = strtoll(text, &end, 10);
	if (length && !*end && !errno)
		return json_integer(number);
	/* Numbers and dates of every other kind. */
	if (length && strchr("+-0123456789", *text))
		return json_string(text);
	if (!strcmp(text, "inf") || !strcmp(text, "nan"))
		return json_string(text);
	toml_fail(reader, "a value belongs here: \"TEXT\", a number, true, false, [..] or {..}");
	return NULL;
}

static json_t *parse_value(struct toml_reader *reader, int depth)
{
	scoped_buffer text = { 0 };

	if (depth > MAX_DEPTH) {
		toml_fail(reader, "arrays and tables within each other, too deep");
		return NULL;
	}
	if (*reader->at == '[')
		return array(reader, depth);
	if (*reader->at == '{')
		return inline_table(reader, depth);
	if (*reader->at != '"' && *reader->at != '\'')
		return parse_word(reader);
	if (toml_string(reader, &text))
		return NULL;
	json_t *string = json_stringn(text.text ? text.text : "", text.length);
	if (!string)
		toml_fail(reader, "text that is no UTF-8");
	return string;
}

/* [TABLE] or [[TABLE]]: the one that is open from here on. NULL: an error. */
static json_t *header(struct toml_reader *reader, json_t *root)
{
	bool many = reader->at[1] == '[';
	json_t *table = root, *here;

	reader->at += many ? 2 : 1;
	skip_blanks(reader);
	scoped_free char *key = key_of(reader, &table);
	if (!key)
		return NULL;
	if (reader->at[0] != ']' || (many && reader->at[1] != ']')) {
		toml_fail(reader, "\"%s\" belongs behind the table's name", many ? "]]" : "]");
		return NULL;
	}
	reader->at += many ? 2 : 1;
	if (end_of_line(reader))
		return NULL;
	here = json_object_get(table, key);
	if (!many) {
		/* What came by itself, for a table below it, may be opened once. */
		if (json_is_object(here) && !json_object_get(here, "\001open")) {
			json_object_set_new(here, "\001open", json_true());
			return here;
		}
		if (here) {
			toml_fail(reader, "\"%.64s\" stands here a second time", key);
			return NULL;
		}
		here = descend(reader, table, key);
		if (here)
			json_object_set_new(here, "\001open", json_true());
		return here;
	}
	if (!here) {
		here = json_array();
		if (json_object_set_new(table, key, here)) {
			toml_fail(reader, "a key that is no UTF-8");
			return NULL;
		}
	}
	if (!json_is_array(here)) {
		toml_fail(reader, "\"%.64s\" has a value already that is no array of tables", key);
		return NULL;
	}
	json_array_append_new(here, new_table(reader->line));
	return json_array_get(here, json_array_size(here) - 1);
}

json_t *toml_parse(const char *text, struct jail_error *err)
{
	struct toml_reader reader = { .at = text, .line = 1, .err = err };
	json_t *root = new_table(1), *table = root;

	for (skip_lines(&reader); *reader.at; skip_lines(&reader)) {
		bool failed = *reader.at == '[' ? !(table = header(&reader, root)) :
						  pair(&reader, table, 0) || end_of_line(&reader);
		if (failed) {
			json_decref(root);
			return NULL;
		}
	}
	return root;
}
