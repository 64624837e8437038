/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the three files that enroot reads in a container's root, made from the image's configuration: rc,
 * environment and fstab. produce.c calls it. */
#define _GNU_SOURCE
#include "runtime_files.h"

#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/variables.h"

/* In single quotes nothing means anything to a shell but a quote. */
static void append_quoted(struct text_buffer *text, const char *word)
{
	text_append(text, "'", 1);
	for (const char *quote; (quote = strchr(word, '\'')); word = quote + 1) {
		text_append(text, word, (size_t)(quote - word));
		text_append_string(text, "'\\''");
	}
	text_append_string(text, word);
	text_append(text, "'", 1);
}

/* One line: what would end it, or move a terminal's cursor, becomes a blank. */
static void append_comment(struct text_buffer *text, const char *words)
{
	for (; *words; words++)
		text_append(text, (unsigned char)*words < ' ' || *words == 0x7f ? " " : words, 1);
	text_append(text, "\n", 1);
}

static void append_words(struct text_buffer *text, const struct text_list *words)
{
	for (size_t i = 0; i < words->n; i++) {
		text_append(text, " ", 1);
		append_quoted(text, words->items[i]);
	}
}

void generate_rc(struct text_buffer *text, const struct image_config *config, const char *uri)
{
	const char *folder = config->folder ? config->folder : "/";

	text_append_string(text, "# enroot-provenance: ");
	append_comment(text, uri);
	for (size_t i = 0; i < config->labels.n; i++) {
		text_append_string(text, "# ");
		append_comment(text, config->labels.items[i]);
	}
	text_append_string(text, "\nmkdir -p -- ");
	append_quoted(text, folder);
	/* Without CDPATH, "cd" would print nothing and go elsewhere; without OLDPWD, a container begins afresh. */
	text_append_string(text, " 2> /dev/null\nCDPATH= cd -- ");
	append_quoted(text, folder);
	text_append_string(text, " || exit 1\nunset OLDPWD\n\nif [ -s /etc/rc.local ]; then\n    . /etc/rc.local\nfi\n\n"
				 "if [ $# -gt 0 ]; then\n    exec");
	append_words(text, &config->entrypoint);
	text_append_string(text, " \"$@\"\nelse\n    exec");
	if (config->entrypoint.n || config->command.n) {
		append_words(text, &config->entrypoint);
		append_words(text, &config->command);
	} else {
		text_append_string(text, " '/bin/sh'");
	}
	text_append_string(text, "\nfi\n");
}

/* fstab(5): blanks, and what begins an escape, as octal numbers. */
static void append_field(struct text_buffer *text, const char *path)
{
	for (; *path; path++) {
		char escaped[5] = { '\\', (char)('0' + ((unsigned char)*path >> 6)),
				    (char)('0' + ((unsigned char)*path >> 3 & 7)), (char)('0' + (*path & 7)), 0 };

		if (*path == ' ' || *path == '\t' || *path == '\n' || *path == '\\' || *path == '#' || *path == '$' ||
		    *path == '\r')
			text_append(text, escaped, 4);
		else
			text_append(text, path, 1);
	}
}

/* From the root, without "." and "..", which cannot lead out of it: "/a/b" for "a/../../a/./b/". "" for the root itself. */
static char *clean_path(const char *path)
{
	struct text_buffer clean = { NULL, 0, 0 };

	text_append_string(&clean, "");
	for (path += strspn(path, "/"); *path; path += strspn(path, "/")) {
		size_t length = strcspn(path, "/");

		if (length == 2 && path[0] == '.' && path[1] == '.') {
			while (clean.length && clean.text[--clean.length] != '/')
				;
			clean.text[clean.length] = '\0';
		} else if (length != 1 || path[0] != '.') {
			text_append(&clean, "/", 1);
			text_append(&clean, path, length);
		}
		path += length;
	}
	return clean.text;
}

void generate_fstab(struct text_buffer *text, const struct image_config *config)
{
	for (size_t i = 0; i < config->volumes.n; i++) {
		scoped_free char *path = clean_path(config->volumes.items[i]);

		/* The root is no volume: all of it would be writable. */
		if (!*path)
			continue;
		text_append_string(text, "${ENROOT_ROOTFS}");
		append_field(text, path);
		text_append(text, " ", 1);
		append_field(text, path);
		text_append_string(text, " none x-create=dir,bind,rw,nosuid,nodev\n");
	}
}

void generate_environment(struct text_buffer *text, const struct image_config *config)
{
	for (size_t i = 0; i < config->environment.n; i++) {
		const char *line = config->environment.items[i], *equals = strchr(line, '=');

		/* A line is all that the file can hold. */
		if (!equals || !variables_is_key(line, (size_t)(equals - line)) || strpbrk(line, "\n\r"))
			continue;
		text_append_string(text, line);
		text_append(text, "\n", 1);
	}
}
