/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how long srun, sbatch and salloc wait after a change of the jail's accounts. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "spank_jail/slurm/new_accounts.h"
#include "native/testing/check.h"

static char etc[] = "/tmp/test-new-accounts-XXXXXX";

static void write_file(const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", etc, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK(write(fd, "x", 1) == 1);
	close(fd);
}

static void pass_ms(long ms)
{
	const struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

int main(void)
{
	CHECK(mkdtemp(etc));
	CHECK(jail_new_accounts_wait_ms(etc) == 0);

	write_file("passwd");
	long fresh = jail_new_accounts_wait_ms(etc);
	CHECK(fresh > 0 && fresh <= JAIL_ACCOUNTS_KNOWN_MS);
	pass_ms(100);
	long later = jail_new_accounts_wait_ms(etc);
	CHECK(later <= fresh - 90);
	/* The newest of the files counts. */
	write_file("shadow");
	CHECK(jail_new_accounts_wait_ms(etc) > later);
	pass_ms(JAIL_ACCOUNTS_KNOWN_MS + 50);
	CHECK(jail_new_accounts_wait_ms(etc) == 0);

	char command[64];
	snprintf(command, sizeof(command), "rm -r %s", etc);
	return system(command) || check_result("new accounts");
}
