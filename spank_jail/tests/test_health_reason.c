/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that reasons of drains by node-health are read as they were written, and that no other reason
 * is taken for one. */
#include <stdbool.h>
#include <string.h>

#include "native/testing/check.h"
#include "spank_jail/health/reason.h"

static bool is_ours(const char *text)
{
	struct health_reason reason;

	return health_reason_read(text, &reason);
}

static void test_there_and_back(void)
{
	const struct health_reason given = { .check = "disk", .instance = "1a2b3c4d", .at = 1795718626 };
	struct health_reason read;
	char text[300], cut[40];

	health_reason_write(&given, "/run is 97 % full", text, sizeof(text));
	CHECK(!strcmp(text, "[cellblock:disk] /run is 97 % full, instance 1a2b3c4d, 2026-11-26T18:43:46Z"));
	CHECK(health_reason_read(text, &read));
	CHECK(!strcmp(read.check, "disk") && !strcmp(read.instance, "1a2b3c4d") && read.at == given.at);
	/* What a check says may look like the rest of a reason. */
	health_reason_write(&given, "x, instance ffff, 2020-01-01T00:00:00Z", text, sizeof(text));
	CHECK(health_reason_read(text, &read) && !strcmp(read.instance, "1a2b3c4d") && read.at == given.at);
	/* One that was cut is nobody's to undo. */
	health_reason_write(&given, "/run is 97 % full", cut, sizeof(cut));
	CHECK(!is_ours(cut));
}

static void test_others(void)
{
	static const char *const others[] = {
		"", "disk is broken", "[cellblock:up] starts anew when its jobs have ended", "[cellblock:leave] ended",
		"see [cellblock:disk] x, instance 1a, 2026-11-26T18:43:46Z", "[cellblock:disk x, instance 1a, 2026-11-26T18:43:46Z",
		"[cellblock:disk] x, instance 1a, yesterday", "[cellblock:disk] x, instance 1a, 2026-11-26T18:43:46Z, and mine",
		"[cellblock:a-name-that-is-longer-than-a-check-can-have] x, instance 1a, 2026-11-26T18:43:46Z",
		"[cellblock:disk] x, 2026-11-26T18:43:46Z", "spank_jail: /mnt/jail/root: ESTALE",
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		CHECK(!is_ours(others[i]));
}

int main(void)
{
	test_there_and_back();
	test_others();
	return check_result("health_reason");
}
