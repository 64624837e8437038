/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one line of a volume's manifest, which says what one file has to be. check.c calls it. */
#define _GNU_SOURCE
#include "line.h"

#include <string.h>

enum { FIELDS = 9 };

struct piece {
	const char *start;
	size_t length;
};

static int hex(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	return -1;
}

static bool unescape(struct piece piece, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < piece.length; i++) {
		char byte = piece.start[i];

		if (byte == '%' && i + 2 < piece.length && hex(piece.start[i + 1]) >= 0 &&
		    hex(piece.start[i + 2]) >= 0) {
			byte = (char)(hex(piece.start[i + 1]) * 16 + hex(piece.start[i + 2]));
			i += 2;
		}
		if (byte == '\0' || n + 1 >= size)
			return false;
		out[n++] = byte;
	}
	out[n] = '\0';
	return true;
}

static bool number(struct piece piece, unsigned base, uint64_t *value)
{
	*value = 0;
	if (piece.length == 0)
		return false;
	for (size_t i = 0; i < piece.length; i++) {
		unsigned digit = (unsigned)piece.start[i] - '0';

		if (digit >= base || *value > (UINT64_MAX - digit) / base)
			return false;
		*value = *value * base + digit;
	}
	return true;
}

static bool is(struct piece piece, const char *text)
{
	return piece.length == strlen(text) && memcmp(piece.start, text, piece.length) == 0;
}

/* Names with one slash between them, none of which leads up or to the same place: what a manifest may have looked up. */
static bool is_path(const char *path)
{
	for (;;) {
		size_t length = strcspn(path, "/");

		if (length == 0 || (length == 1 && path[0] == '.') || (length == 2 && !strncmp(path, "..", 2)))
			return false;
		if (!path[length])
			return true;
		path += length + 1;
	}
}

bool volume_line_parse(const char *text, size_t length, struct volume_line *line)
{
	struct piece pieces[FIELDS];
	size_t n = 0, start = 0;
	uint64_t mode, uid, gid, time;

	for (size_t i = 0; i <= length; i++) {
		if (i < length && text[i] != ' ')
			continue;
		if (n == FIELDS)
			return false;
		pieces[n++] = (struct piece){ text + start, i - start };
		start = i + 1;
	}
	if (n != FIELDS || pieces[0].length != 1 || !strchr("dflpcbh", pieces[0].start[0]))
		return false;
	struct piece clock = pieces[5];
	bool negative = clock.length > 1 && clock.start[0] == '-';

	if (negative)
		clock = (struct piece){ clock.start + 1, clock.length - 1 };
	if (!number(pieces[1], 8, &mode) || !number(pieces[2], 10, &uid) || !number(pieces[3], 10, &gid) ||
	    !number(pieces[4], 10, &line->size) || !number(clock, 10, &time) || mode > 07777 ||
	    uid > UINT32_MAX || gid > UINT32_MAX || time > INT64_MAX)
		return false;
	line->kind = pieces[0].start[0];
	line->mode = (unsigned)mode;
	line->uid = (uint32_t)uid;
	line->gid = (uint32_t)gid;
	line->time = negative ? -(int64_t)time : (int64_t)time;
	line->content = pieces[6].start;
	line->content_length = pieces[6].length;
	line->has_attributes = !is(pieces[7], "-");
	line->target[0] = '\0';
	if ((line->kind == 'l' || line->kind == 'h') && !unescape(pieces[6], line->target, sizeof line->target))
		return false;
	if (line->kind == 'h' && !is_path(line->target))
		return false;
	if (is(pieces[8], ".")) {
		line->path[0] = '\0';
		return true;
	}
	return unescape(pieces[8], line->path, sizeof line->path) && is_path(line->path);
}
