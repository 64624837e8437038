/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one line of a volume's manifest into its fields. */
#ifndef VOLUME_LINE_H
#define VOLUME_LINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct volume_line {
	char kind;
	unsigned mode;
	uint32_t uid, gid;
	uint64_t size;
	int64_t time; /* mtime in nanoseconds */
	const char *content; /* not terminated: points into the text */
	size_t content_length;
	bool has_attributes;
	char path[PATH_MAX];   /* without escapes; "" is the root */
	char target[PATH_MAX]; /* of symbolic and hard links, without escapes */
};

/* Parses `length` bytes without their newline. Returns false for what is no line of a manifest. */
bool volume_line_parse(const char *text, size_t length, struct volume_line *line);

#endif
