/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how long slurmstepd puts off SIGKILL for processes that write core files. guards.c calls it. */
#define _GNU_SOURCE
#include "core_dumps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "native/base/clock.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/process_status.h"

/* When slurmstepd asked first; 0: not yet. Two threads may ask at a time, in the same second. */
static long first_s;

static bool is_stat(const char *path)
{
	const char *number = path + strlen("/proc/");

	return !strncmp(path, "/proc/", strlen("/proc/")) && strspn(number, "0123456789") &&
	       !strcmp(number + strspn(number, "0123456789"), "/stat");
}

bool jail_core_dumps_is_spared(const char *path, long waited)
{
	char other[64], status[4096];

	snprintf(other, sizeof(other), "%.40sus", path);
	return is_stat(path) && waited < JAIL_CORE_DUMPS_LONGEST_S && process_read_status(other, status, sizeof(status)) &&
	       process_number(status, "\nCoreDumping:\t") == 1;
}

static long since_first_s(void)
{
	const long now = clock_s();

	if (!first_s)
		first_s = now;
	return now - first_s;
}

/* In place of open(2) in slurmstepd, which reads of a process that it is to end whether it writes a core file. One that it cannot open
 * has ended. */
static int open_stat(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list rest;

	va_start(rest, flags);
	if (flags & (O_CREAT | __O_TMPFILE))
		mode = va_arg(rest, mode_t);
	va_end(rest);
	if (is_stat(path) && !jail_core_dumps_is_spared(path, since_first_s())) {
		errno = ENOENT;
		return -1;
	}
	return open(path, flags, mode);
}

int jail_core_dumps_guard(struct jail_error *err)
{
	const struct link_map *stepd = jail_imports_program(), *library = jail_imports_library("libslurm");
	int missing = stepd ? jail_imports_replace(stepd, "open", (void *)open_stat, err) : 1;

	/* Some releases have it in their library. */
	if (missing >= 0 && library && jail_imports_replace(library, "open", (void *)open_stat, err) == 0)
		missing = 0;
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this slurmstepd spares processes that write core files in an unknown way: "
						  "a user's that never ends one outlives its step, and the node is drained");
}
