/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which descriptors a fork of slurmstepd keeps open. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <unistd.h>

#include "native/testing/check.h"
#include "pyxis/step/descriptors.h"

static int flags(int fd)
{
	return fcntl(fd, F_GETFD);
}

int main(void)
{
	const int kept[] = { 40, -1, 7, 41 }, open_ones[] = { 3, 6, 7, 8, 39, 40, 41, 42, 900 };

	for (size_t i = 0; i < sizeof(open_ones) / sizeof(open_ones[0]); i++)
		CHECK(dup2(STDERR_FILENO, open_ones[i]) == open_ones[i]);
	descriptors_seal_but(kept, 4);
	CHECK(flags(2) == 0 && flags(7) == 0 && flags(40) == 0 && flags(41) == 0);
	CHECK(flags(3) == FD_CLOEXEC && flags(6) == FD_CLOEXEC && flags(8) == FD_CLOEXEC && flags(39) == FD_CLOEXEC &&
	      flags(42) == FD_CLOEXEC && flags(900) == FD_CLOEXEC);
	descriptors_close_but(kept, 4);
	CHECK(flags(2) == 0 && flags(7) == 0 && flags(40) == 0 && flags(41) == 0);
	CHECK(flags(3) < 0 && flags(6) < 0 && flags(8) < 0 && flags(39) < 0 && flags(42) < 0 && flags(900) < 0);
	descriptors_close_but(NULL, 0);
	CHECK(flags(2) == 0 && flags(7) < 0 && flags(40) < 0);
	return check_result("descriptors");
}
