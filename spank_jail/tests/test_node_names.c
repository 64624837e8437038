/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that lists of billions of nodes are refused, in a program that stands for slurmctld. Slurm's functions here
 * count the letters that they get. */
#include <stdbool.h>
#include <string.h>

#include "native/testing/check.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/node_names.h"

static void test_counts(void)
{
	CHECK(jail_node_names_count("", 10) == 1);
	CHECK(jail_node_names_count("n[1-5],m", 10) == 6);
	CHECK(jail_node_names_count("n[1-5]-[1-2]", 10) == 10);
	CHECK(jail_node_names_count("n[1-5]-[1-3]", 10) == 11);
	CHECK(jail_node_names_count("a b c", 2) == 3);
	CHECK(jail_node_names_count("n[0-65535]m[0-65535]", 65536) == 65537);
	/* 2^32 times 2^32 is 0 to who multiplies without a bound. */
	CHECK(jail_node_names_count("n[0-65535][0-65535][0-65535][0-65535]", 4000000000U) > 4000000000U);
	CHECK(jail_node_names_count("n[1-2", 10) == 11);
}

int main(void)
{
	struct jail_error error;

	test_counts();
	/* This program has none of Slurm's functions. */
	CHECK(jail_node_names_guard(jail_imports_program(), &error) == 1 && jail_node_names_guard_library(&error) == 1);
	return check_result("node_names");
}
