/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the comparison of two manifests: any two texts, divided by the first zero byte. It ends, each difference is
 * at a line's beginning, asking for a few at a time gives the same, and the digests are sorted. */
#include <stdlib.h>
#include <string.h>

#include "native/volume/manifest_compare.h"
#include "native/directory/pick.h"
#include "native/testing/fuzz.h"

struct text {
	char *data; /* of just this length: what is read beyond it shows */
	size_t length, lines;
};

static struct text text_of(const uint8_t *data, size_t length)
{
	struct text text = { malloc(length ? length : 1), length, 0 };

	MUST(text.data);
	if (length)
		memcpy(text.data, data, length);
	for (size_t i = 0; i < length; i++)
		text.lines += data[i] == '\n';
	return text;
}

static struct image_lines lines_of(const struct text *text)
{
	return (struct image_lines){ .text = text->data, .length = text->length };
}

static bool is_start(const struct text *text, uint64_t at)
{
	return at < text->length && (at == 0 || text->data[at - 1] == '\n');
}

static size_t compare(const struct text *a, const struct text *b, size_t step, struct image_difference *found)
{
	struct image_lines one = lines_of(a), other = lines_of(b);
	size_t count = 0, got;

	do {
		got = image_manifest_compare(&one, &other, found + count, step);
		MUST(got <= step);
		count += got;
		MUST(count <= a->lines + b->lines);
	} while (got == step);
	MUST(image_manifest_compare(&one, &other, found + count, step) == 0);
	return count;
}

static void check_digests(const struct text *text)
{
	uint64_t *digests = calloc(text->lines + 1, sizeof(*digests));
	size_t count;

	MUST(digests);
	count = image_pick_digests(text->data, text->length, digests);
	MUST(count <= text->lines);
	for (size_t i = 1; i < count; i++)
		MUST(digests[i - 1] <= digests[i]);
	free(digests);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
	size_t first = zero ? (size_t)(zero - data) : size;
	struct text a = text_of(data, first), b = text_of(data + first + !!zero, size - first - !!zero);
	size_t most = a.lines + b.lines + 4, count;
	struct image_difference *all = calloc(2 * most, sizeof(*all)), *few = all + most;

	MUST(all);
	count = compare(&a, &b, most, all);
	MUST(compare(&a, &b, 3, few) == count && !memcmp(all, few, count * sizeof(*all)));
	for (size_t i = 0; i < count; i++) {
		MUST(all[i].a != IMAGE_NO_LINE || all[i].b != IMAGE_NO_LINE);
		MUST(all[i].a == IMAGE_NO_LINE || is_start(&a, all[i].a));
		MUST(all[i].b == IMAGE_NO_LINE || is_start(&b, all[i].b));
	}
	count = compare(&a, &a, most, all);
	for (size_t i = 0; i < count; i++)
		MUST(all[i].a == all[i].b && a.data[all[i].a] == 'h');
	check_digests(&a);
	check_digests(&b);
	free(all);
	free(a.data);
	free(b.data);
	return 0;
}
