/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that each file's record is the last one that any thread stored, also while many wait to be written. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "native/layers/records.h"
#include "native/testing/check.h"

#define COUNT 20000u

static uint64_t expected[COUNT]; /* sizes; 0: nothing was put */
static char texts[COUNT][24];

static struct image_record prepared(struct image_records *records, uint32_t node, uint64_t size)
{
	struct image_error err;
	struct image_record record;
	struct image_entry entry = { .kind = 'f', .path = "", .target = texts[node], .size = size };

	snprintf(texts[node], sizeof(texts[node]), "%.*s%u", (int)(node % 5), "links", node);
	entry.target_length = node % 3 ? 0 : strlen(texts[node]);
	CHECK(!image_records_prepare(records, &entry, &record, &err));
	expected[node] = size;
	return record;
}

static void check_all(struct image_records *records)
{
	struct image_error err;
	struct image_record many[7];
	unsigned char *text = NULL;
	size_t capacity = 0;

	for (uint32_t node = 0; node + 7 <= COUNT; node += 5) {
		CHECK(!image_records_get_many(records, node, 7, many, &err));
		for (unsigned i = 0; i < 7; i++)
			CHECK(many[i].size == expected[node + i]);
		if (!many[0].target_length)
			continue;
		CHECK(!image_records_extra(records, &many[0], &text, &capacity, &err));
		CHECK(many[0].target_length == strlen(texts[node]) && !memcmp(text, texts[node], strlen(texts[node])));
	}
	free(text);
}

static void test_one_thread(void)
{
	struct image_error err;
	struct image_records *records = image_records_new("/tmp", &err);
	struct image_record record;
	uint32_t random = 1, next = 0;

	CHECK(records);
	memset(expected, 0, sizeof(expected));
	while (next < COUNT) {
		random = random * 1664525u + 1013904223u;
		if (random >> 24 < 4)
			next += 1 + (random >> 16) % 3; /* nodes of which nothing is known */
		if (next >= COUNT)
			break;
		record = prepared(records, next, random | 1u);
		CHECK(!image_records_put_next(records, next++, &record, &err));
		if (random >> 24 < 200)
			continue;
		/* Another's put, and a look, at what may wait or not. */
		uint32_t node = next - 1 - (random >> 8) % (next < 900 ? next : 900);

		record = prepared(records, node, (random >> 3) | 1u);
		CHECK(!image_records_put(records, node, &record, &err));
		node = (random >> 5) % next;
		CHECK(!image_records_get(records, node, &record, &err) && record.size == expected[node]);
	}
	CHECK(!image_records_flush(records, &err));
	check_all(records);
	CHECK(!image_records_load(records, COUNT, &err));
	check_all(records);
	image_records_free(records);
}

struct share {
	struct image_records *records;
	unsigned number, failed;
};

/* Threads put every node that is not a multiple of four; the adding thread those. */
static void *put_share(void *argument)
{
	struct share *share = argument;
	struct image_error err;

	for (uint32_t node = share->number; node < COUNT; node += 4) {
		struct image_record record = { .size = node + 1u, .known = 1 };

		share->failed += image_records_put(share->records, node, &record, &err) != 0;
	}
	return NULL;
}

static void test_threads(void)
{
	struct image_error err;
	struct image_records *records = image_records_new("/tmp", &err);
	struct share shares[3] = { { records, 1, 0 }, { records, 2, 0 }, { records, 3, 0 } };
	struct image_record record = { .known = 1 };
	pthread_t threads[3];

	CHECK(records);
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&threads[i], NULL, put_share, &shares[i]));
	for (uint32_t node = 0; node < COUNT; node += 4) {
		record.size = node + 1u;
		CHECK(!image_records_put_next(records, node, &record, &err));
	}
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(threads[i], NULL) && !shares[i].failed);
	for (uint32_t node = 0; node < COUNT; node++)
		CHECK(!image_records_get(records, node, &record, &err) && record.size == node + 1u);
	image_records_free(records);
}

int main(void)
{
	test_one_thread();
	test_threads();
	return check_result("records");
}
