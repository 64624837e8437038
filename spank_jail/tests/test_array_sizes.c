/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that messages asking for huge arrays are refused, in a program that stands for slurmctld. */
#include <stdint.h>

#include "native/testing/check.h"
#include "spank_jail/guards/common/array_sizes.h"
#include "spank_jail/guards/common/imported_functions.h"

int main(void)
{
	struct jail_error error;

	CHECK(jail_array_fits(0, 8));
	CHECK(jail_array_fits(100000, 48));
	CHECK(jail_array_fits(8 << 20, 8));
	/* One text, or one message: bounded elsewhere. */
	CHECK(jail_array_fits(1, (size_t)1 << 30));
	CHECK(jail_array_fits(SIZE_MAX, 0));
	CHECK(!jail_array_fits((8 << 20) + 1, 8));
	CHECK(!jail_array_fits(UINT32_MAX, 48));
	CHECK(!jail_array_fits(SIZE_MAX / 4, 8));
	/* This program has none of Slurm's functions. */
	CHECK(jail_array_sizes_guard(jail_imports_program(), &error) == 1);
	CHECK(jail_array_sizes_guard(NULL, &error) == 1);
	return check_result("array_sizes");
}
