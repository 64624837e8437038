/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the lines in which two manifests of volumes differ, for an upgrade.
 * Python calls it (native/cffi/image_core.py). */
#define _GNU_SOURCE
#include "manifest_compare.h"

#include <stdbool.h>
#include <string.h>

#include "native/layers/mapped.h"

struct line {
	const char *start, *name, *end; /* the name is the last field; without the newline */
};

static bool next(const struct image_lines *lines, struct line *line)
{
	const char *start = lines->text + lines->at, *limit = lines->text + lines->length;

	if (start >= limit || (limit - start >= 4 && !memcmp(start, "end ", 4)))
		return false;
	line->start = start;
	line->end = memchr(start, '\n', (size_t)(limit - start));
	if (!line->end)
		return false;
	line->name = memrchr(start, ' ', (size_t)(line->end - start));
	line->name = line->name ? line->name + 1 : start;
	return true;
}

static int hexadecimal(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}

/* The next byte of a name as it sorts; -1: there is none. */
static int next_byte(const char **at, const char *end)
{
	int c;

	if (*at >= end)
		return -1;
	c = (unsigned char)*(*at)++;
	if (c == '%' && end - *at >= 2) {
		c = hexadecimal((*at)[0]) << 4 | hexadecimal((*at)[1]);
		*at += 2;
	}
	return c == '/' ? 0 : c;
}

static int by_name(const struct line *a, const struct line *b)
{
	const char *x = a->name, *y = b->name;

	/* "." is the root, which comes before all. */
	if (a->end - x == 1 && *x == '.')
		x = a->end;
	if (b->end - y == 1 && *y == '.')
		y = b->end;
	for (;;) {
		int one = next_byte(&x, a->end), other = next_byte(&y, b->end);

		if (one != other)
			return one - other;
		if (one < 0)
			return 0;
	}
}

static void step(struct image_lines *lines, const struct line *line)
{
	lines->at = (uint64_t)(line->end + 1 - lines->text);
	image_mapped_drop(lines->text, &lines->dropped, lines->at);
}

static bool is_same(const struct line *a, const struct line *b)
{
	return a->end - a->start == b->end - b->start && !memcmp(a->start, b->start, (size_t)(a->end - a->start));
}

size_t image_manifest_compare(struct image_lines *a, struct image_lines *b, struct image_difference *found, size_t capacity)
{
	size_t count = 0;

	while (count < capacity) {
		struct line one, other;
		bool has_one = next(a, &one), has_other = next(b, &other);
		int way;

		if (!has_one && !has_other)
			break;
		if (has_one && has_other && is_same(&one, &other)) {
			if (*one.start == 'h')
				found[count++] = (struct image_difference){ a->at, b->at };
			step(a, &one);
			step(b, &other);
			continue;
		}
		way = !has_one ? 1 : !has_other ? -1 : by_name(&one, &other);
		found[count++] = (struct image_difference){ way <= 0 ? a->at : IMAGE_NO_LINE, way >= 0 ? b->at : IMAGE_NO_LINE };
		if (way <= 0)
			step(a, &one);
		if (way >= 0)
			step(b, &other);
	}
	return count;
}
