/* SPDX-License-Identifier: Apache-2.0 */
/* Parses strings of TOML, which have four kinds of quotes. toml.c calls it. */
#define _GNU_SOURCE
#include "toml_string.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int toml_fail(struct toml_reader *reader, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	jail_fail(reader->err, NULL, 0, "%s", jail_one_line(text));
	reader->err->line = reader->line;
	return -1;
}

/* The character `code` as UTF-8. */
static int append_code(struct toml_reader *reader, struct text_buffer *text, unsigned long code)
{
	char bytes[4];
	size_t length;

	if (!code || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
		return toml_fail(reader, "\\u of what is no character");
	if (code < 0x80) {
		bytes[0] = (char)code;
		length = 1;
	} else {
		length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
		for (size_t i = length - 1; i; i--, code >>= 6)
			bytes[i] = (char)(0x80 | (code & 0x3f));
		bytes[0] = (char)((0xf00 >> length) | code);
	}
	text_append(text, bytes, length);
	return 0;
}

/* At the backslash. */
static int escape(struct toml_reader *reader, struct text_buffer *text, bool lines)
{
	static const char letters[] = "btnfre\"\\", meanings[] = "\b\t\n\f\r\033\"\\";
	const char *letter = reader->at[1] ? strchr(letters, reader->at[1]) : NULL;
	size_t digits = reader->at[1] == 'u' ? 4 : reader->at[1] == 'U' ? 8 : 0;
	char code[9] = "";

	if (letter) {
		text_append(text, &meanings[letter - letters], 1);
		reader->at += 2;
		return 0;
	}
	if (digits) {
		size_t there = strspn(reader->at + 2, "0123456789abcdefABCDEF");
		if (there < digits)
			return toml_fail(reader, "\\%c wants %zu digits", reader->at[1], digits);
		memcpy(code, reader->at + 2, digits);
		reader->at += 2 + digits;
		return append_code(reader, text, strtoul(code, NULL, 16));
	}
	size_t blanks = strspn(reader->at + 1, " \t\r");
	if (!lines || reader->at[1 + blanks] != '\n')
		return toml_fail(reader, "a backslash that begins no escape; '...' takes backslashes as they are");
	/* It takes the line's end away, and all blanks behind it. */
	for (reader->at++; *reader->at && strchr(" \t\r\n", *reader->at); reader->at++)
		reader->line += *reader->at == '\n';
	return 0;
}

int toml_string(struct toml_reader *reader, struct text_buffer *text)
{
	char quote = *reader->at;
	const char three[] = { quote, quote, quote, '\0' };
	bool lines = text_starts(reader->at, three);

	reader->at += lines ? 3 : 1;
	if (lines) {
		reader->at += reader->at[0] == '\r' && reader->at[1] == '\n';
		if (*reader->at == '\n') {
			reader->at++;
			reader->line++;
		}
	}
	for (;;) {
		if (!*reader->at || (!lines && *reader->at == '\n'))
			return toml_fail(reader, "text without the %s at its end", lines ? three : three + 2);
		if (lines ? text_starts(reader->at, three) : *reader->at == quote) {
			/* Up to two quotes may stand before the three. */
			for (int more = 0; lines && more < 2 && reader->at[3] == quote; more++)
				text_append(text, reader->at++, 1);
			reader->at += lines ? 3 : 1;
			return 0;
		}
		if (*reader->at == '\\' && quote == '"') {
			if (escape(reader, text, lines))
				return -1;
			continue;
		}
		reader->line += *reader->at == '\n';
		text_append(text, reader->at++, 1);
	}
}
