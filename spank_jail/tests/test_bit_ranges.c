/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that huge ranges with a step are refused, in a program that stands for slurmctld. */
#include "native/testing/check.h"
#include "spank_jail/guards/controller/bit_ranges.h"
#include "spank_jail/guards/common/imported_functions.h"

static void test_what_fits(void)
{
	CHECK(jail_bit_ranges_fit("0-9:3", 10));
	CHECK(jail_bit_ranges_fit("4-4:1", 10));
	/* Slurm looks at these itself. */
	CHECK(jail_bit_ranges_fit("1,3-2000000000", 10));
	CHECK(jail_bit_ranges_fit("", 10));
}

static void test_what_does_not(void)
{
	static const char *const texts[] = { "0-10:3",	"-1-9:1",   "0--9:1",	 "9-0:1",	"0-9:0",   "0-9:10", "0-9:2147483647",
					     "0-9:-2",	"0-9:1:1",  "0-9:1,3",	 ":",		"0:1",	   "1-:1",   " 1-2:1",
					     "0-9999999999999999999:1", "-1073741824-1073741824:1" };

	for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		CHECK(!jail_bit_ranges_fit(texts[i], 10));
}

int main(void)
{
	struct jail_error error;

	test_what_fits();
	test_what_does_not();
	/* This program has none of Slurm's functions. */
	CHECK(jail_bit_ranges_guard(jail_imports_program(), &error) == 1);
	return check_result("bit_ranges");
}
