/* SPDX-License-Identifier: Apache-2.0 */
/* Decides, by a list of digests, whether the content of a file is to be written. pick_content.c calls it.
 *
 * An upgrade of a jail reads a whole layer, but needs the content of the files that changed.
 */
#define _GNU_SOURCE
#include "pick.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/layers/mapped.h"

#define DIGESTS_TOGETHER 512u

static bool is_among(const uint64_t *digests, size_t count, uint64_t value)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (digests[middle] == value)
			return true;
		if (digests[middle] < value)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static bool read_some(int file, uint64_t *digests, size_t count, size_t first)
{
	char *at = (char *)digests;
	size_t left = count * sizeof(*digests);
	off_t offset = (off_t)(first * sizeof(*digests));

	while (left) {
		ssize_t got = pread(file, at, left, offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		at += got;
		offset += got;
		left -= (size_t)got;
	}
	return true;
}

static bool is_in_file(const struct image_pick *pick, uint64_t value)
{
	size_t low = pick->starts[value >> 48], high = pick->starts[(value >> 48) + 1];
	uint64_t digests[DIGESTS_TOGETHER];

	/* Somebody made a million that begin with the same 16 bits. */
	while (high - low > DIGESTS_TOGETHER) {
		size_t middle = low + (high - low) / 2;

		if (!read_some(pick->file, digests, 1, middle))
			return false;
		if (digests[0] <= value)
			low = middle;
		else
			high = middle;
	}
	return read_some(pick->file, digests, high - low, low) && is_among(digests, high - low, value);
}

static bool is_listed(const struct image_pick *pick, const unsigned char digest[32])
{
	uint64_t value;

	memcpy(&value, digest, sizeof(value));
	value = be64toh(value);
	return pick->starts ? is_in_file(pick, value) : is_among(pick->digests, pick->count, value);
}

void image_pick_starts(const uint64_t *digests, size_t count, uint32_t starts[IMAGE_PICK_STARTS])
{
	size_t at = 0;

	for (uint32_t first = 0; first < IMAGE_PICK_STARTS; first++) {
		while (at < count && digests[at] >> 48 < first)
			at++;
		starts[first] = (uint32_t)at;
	}
}

bool image_pick_takes(const struct image_pick *pick, const unsigned char digest[32], const char *path)
{
	if (is_listed(pick, digest) == pick->wanted)
		return true;
	for (unsigned i = 0; i < pick->n_always; i++)
		if (!strncmp(path, pick->always[i], strlen(pick->always[i])))
			return true;
	return false;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Of a manifest's line "f MODE UID GID SIZE MTIME DIGEST ...": false, it is of no file. */
static bool digest_of(const char *line, const char *end, uint64_t *value)
{
	const char *field = line;

	if (end - line < 2 || line[0] != 'f' || line[1] != ' ')
		return false;
	for (int i = 0; i < 6 && field; i++) {
		field = memchr(field, ' ', (size_t)(end - field));
		field = field ? field + 1 : NULL;
	}
	if (!field || end - field < 16)
		return false;
	*value = 0;
	for (int i = 0; i < 16; i++) {
		int one = digit(field[i]);

		if (one < 0)
			return false;
		*value = *value << 4 | (uint64_t)one;
	}
	return true;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

size_t image_pick_digests(const char *text, size_t length, uint64_t *digests)
{
	const char *line = text, *end = text + length;
	uint64_t dropped = 0;
	size_t count = 0;

	while (line < end) {
		const char *line_end = memchr(line, '\n', (size_t)(end - line));

		if (!line_end)
			break;
		if (digest_of(line, line_end, digests + count))
			count++;
		line = line_end + 1;
		image_mapped_drop(text, &dropped, (uint64_t)(line - text));
	}
	qsort(digests, count, sizeof(*digests), by_value);
	return count;
}
