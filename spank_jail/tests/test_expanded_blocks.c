/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the limit for data that slurmd decompresses at a time. */
#include "native/testing/check.h"
#include "spank_jail/guards/node/expanded_blocks.h"

static void test_as_much_as_a_second_has(void)
{
	struct jail_expanded_room room = { JAIL_EXPANDED_IN_A_SECOND, 5000 };

	CHECK(jail_expanded_take(&room, JAIL_EXPANDED_MOST, 5000) && jail_expanded_take(&room, JAIL_EXPANDED_MOST, 5000));
	CHECK(!jail_expanded_take(&room, 1, 5000));
	CHECK(jail_expanded_take(&room, JAIL_EXPANDED_MOST, 5010) && room.bytes < 0);
	CHECK(!jail_expanded_take(&room, 1, 5400) && jail_expanded_take(&room, 1, 5600));
}

static void test_after_a_while_it_is_a_seconds_again(void)
{
	struct jail_expanded_room room = { -JAIL_EXPANDED_MOST, 0 };

	CHECK(jail_expanded_take(&room, 1, 1000000000L) && room.bytes == JAIL_EXPANDED_IN_A_SECOND - 1);
	CHECK(jail_expanded_take(&room, 0, 1000001999L) && room.bytes == JAIL_EXPANDED_IN_A_SECOND);
}

int main(void)
{
	test_as_much_as_a_second_has();
	test_after_a_while_it_is_a_seconds_again();
	return check_result("expanded_blocks");
}
