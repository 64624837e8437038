/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which contents are chosen to be written, and how digests are read from a manifest's lines. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/directory/pick.h"
#include "native/testing/check.h"

static const unsigned char low[32] = { 0, 0, 0, 0, 0, 0, 0, 1 }, high[32] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff },
			   between[32] = { 0, 0, 0, 0, 1 };

static void test_takes(void)
{
	static const uint64_t digests[] = { 1, UINT64_C(1) << 24, UINT64_MAX };
	static const char *const always[] = { "etc/passwd", "var/lib/dpkg/" };
	struct image_pick pick = { .digests = digests, .count = 3, .wanted = true };

	CHECK(image_pick_takes(&pick, low, "x") && image_pick_takes(&pick, between, "x") && image_pick_takes(&pick, high, "x"));
	CHECK(!image_pick_takes(&pick, (const unsigned char[32]){ 0 }, "x"));
	pick.wanted = false;
	CHECK(!image_pick_takes(&pick, low, "x") && !image_pick_takes(&pick, high, "x"));
	CHECK(image_pick_takes(&pick, (const unsigned char[32]){ 0 }, "x"));
	pick.always = always;
	pick.n_always = 2;
	CHECK(image_pick_takes(&pick, low, "etc/passwd") && image_pick_takes(&pick, low, "var/lib/dpkg/status"));
	CHECK(!image_pick_takes(&pick, low, "etc/passw") && !image_pick_takes(&pick, low, "usr/etc/passwd"));
	/* All that is not among none, and none that is. */
	pick = (struct image_pick){ .wanted = false };
	CHECK(image_pick_takes(&pick, low, "x"));
	pick.wanted = true;
	CHECK(!image_pick_takes(&pick, low, "x"));
}

/* The same answers from a file as from memory, also where thousands begin alike. */
static void test_file(void)
{
	enum { COUNT = 5000 };
	uint64_t *digests = calloc(COUNT, sizeof(*digests));
	uint32_t *starts = calloc(IMAGE_PICK_STARTS, sizeof(*starts));
	FILE *file = tmpfile();
	struct image_pick kept, filed;

	for (uint64_t i = 0; i < COUNT; i++)
		digests[i] = i < 3000 ? UINT64_C(0x1234) << 48 | i * 4 : UINT64_C(0xffff) << 48 | (i - 3000) * 4;
	digests[0] = 0;
	digests[COUNT - 1] = UINT64_MAX;
	CHECK(fwrite(digests, sizeof(*digests), COUNT, file) == COUNT && !fflush(file));
	image_pick_starts(digests, COUNT, starts);
	CHECK(starts[0] == 0 && starts[1] == 1 && starts[0x1235] == 3000 && starts[65536] == COUNT);
	kept = (struct image_pick){ .digests = digests, .count = COUNT, .wanted = true };
	filed = (struct image_pick){ .starts = starts, .file = fileno(file), .wanted = true };
	for (uint64_t i = 0; i < COUNT; i++) {
		unsigned char digest[32] = { 0 };
		uint64_t value = htobe64(digests[i]), beside = htobe64(digests[i] + 1);

		memcpy(digest, &value, sizeof(value));
		CHECK(image_pick_takes(&filed, digest, "x"));
		memcpy(digest, &beside, sizeof(beside));
		CHECK(image_pick_takes(&filed, digest, "x") == image_pick_takes(&kept, digest, "x"));
	}
	/* What cannot be read lists nothing. */
	filed.file = -1;
	CHECK(!image_pick_takes(&filed, low, "x") && !image_pick_takes(&filed, high, "x"));
	image_pick_starts(digests, 0, starts);
	CHECK(starts[0] == 0 && starts[65536] == 0);
	fclose(file);
	free(starts);
	free(digests);
}

static void test_digests(void)
{
	static const char text[] = "cellblock-manifest 1\n"
				   "d 755 0 0 0 0 - - .\n"
				   "f 644 0 0 1 0 ffffffffffffffff00 - b\n"
				   "h 644 0 0 1 0 a - c\n"
				   "f 644 0 0 1 0 0000000000000001ab - a%20b\n"
				   "f 644 0 0 0 0 - - empty\n"
				   "f 644 0 0 1 0 00000000000000XX00 - wrong\n"
				   "f 644 0 0 1\n"
				   "f\n"
				   "\n"
				   "end 6 2 x\n"
				   "f 644 0 0 1 0 1111111111111111 - has no end";
	uint64_t *digests = calloc(12, sizeof(*digests));

	CHECK(image_pick_digests(text, sizeof(text) - 1, digests) == 2);
	CHECK(digests[0] == 1 && digests[1] == UINT64_MAX);
	CHECK(image_pick_digests(text, 0, digests) == 0);
	free(digests);
}

int main(void)
{
	test_takes();
	test_file();
	test_digests();
	return check_result("pick");
}
