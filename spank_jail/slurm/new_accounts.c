/* SPDX-License-Identifier: Apache-2.0 */
/* Makes srun, sbatch and salloc wait until slurmctld knows a user who was just added to the jail. plugin.c calls it
 * in srun, sbatch and salloc.
 *
 * The client waits, not slurmctld: root in the jail could become one unknown user after another, and hold up
 * everybody's submissions (docs/decisions/jail-accounts.md).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "new_accounts.h"

static long wait_for_file_ms(const char *etc, const char *name, const struct timespec *now)
{
	char path[256];
	struct stat file;

	if (snprintf(path, sizeof(path), "%s/%s", etc, name) >= (int)sizeof(path) ||
	    fstatat(AT_FDCWD, path, &file, AT_SYMLINK_NOFOLLOW))
		return 0;
	long long age_ms = (now->tv_sec - file.st_ctim.tv_sec) * 1000LL + (now->tv_nsec - file.st_ctim.tv_nsec) / 1000000;
	/* A server's clock may be ahead of this node's; by how much is not known. */
	if (age_ms <= -JAIL_ACCOUNTS_KNOWN_MS || age_ms >= JAIL_ACCOUNTS_KNOWN_MS)
		return 0;
	return age_ms < 0 ? JAIL_ACCOUNTS_KNOWN_MS : JAIL_ACCOUNTS_KNOWN_MS - (long)age_ms;
}

long jail_new_accounts_wait_ms(const char *etc)
{
	static const char *const names[] = { "passwd", "group", "shadow" };
	struct timespec now;
	long longest = 0;

	clock_gettime(CLOCK_REALTIME, &now);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		long wait = wait_for_file_ms(etc, names[i], &now);

		longest = wait > longest ? wait : longest;
	}
	return longest;
}

bool jail_new_accounts_wait(void)
{
	long ms = jail_new_accounts_wait_ms("/etc");
	struct timespec rest = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
	return ms > 0;
}
