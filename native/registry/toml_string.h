/* SPDX-License-Identifier: Apache-2.0 */
/* Parses strings of TOML. Only toml.c and toml_string.c include it. */
#ifndef REGISTRY_TOML_STRING_H
#define REGISTRY_TOML_STRING_H

#include "native/base/text.h"

struct toml_reader {
	const char *at;
	int line;
	struct jail_error *err;
};

/* Fills `err` with this line; returns -1. */
int toml_fail(struct toml_reader *reader, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads "text", 'text', """text""" or '''text''' at the quote. Returns 0 or -1. */
int toml_string(struct toml_reader *reader, struct text_buffer *text);

#endif
