/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps users' processes from blocking the accounting of a step in slurmstepd, and with it threads of slurmd.
 * guards.c calls it. */
#define _GNU_SOURCE
#include "accounting.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "native/base/scoped.h"
#include "bounded_read.h"
#include "spank_jail/guards/common/imported_functions.h"
#include "spank_jail/guards/common/process_status.h"

#define PROCESSES "/proc/"

/* Whether its reader may be kept waiting: by what a process executes or maps. */
static bool may_wait(const char *path)
{
	static const char *const names[] = { "/stat", "/io", "/smaps", "/smaps_rollup" };
	const char *slash = strrchr(path, '/');
	char other[64], status[4096];

	if (strncmp(path, PROCESSES, strlen(PROCESSES)) != 0 || !isdigit((unsigned char)path[strlen(PROCESSES)]))
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(slash, names[i])) {
			/* At the end of a step of many tasks, which is read once for each, most are dead and execute nothing. */
			snprintf(other, sizeof(other), "%.*s/status", (int)(slash - path), path);
			return !process_read_status(other, status, sizeof(status)) || !strstr(status, "\nState:\tZ") ||
			       process_number(status, "\nThreads:\t") > 1;
		}
	return false;
}

/* In place of fopen(3) in the plugin. A process that does not let itself be read counts as one that has gone. */
static FILE *open_process_file(const char *path, const char *mode)
{
	if (!may_wait(path))
		return fopen(path, mode);
	int copy = bounded_read(path);
	FILE *stream = copy < 0 ? NULL : fdopen(copy, "r");
	if (!stream) {
		jail_close(&copy);
		errno = ENOENT;
	}
	return stream;
}

int jail_accounting_guard(struct jail_error *err)
{
	const struct link_map *plugin = jail_imports_library("jobacct_gather_linux");

	if (!plugin)
		plugin = jail_imports_library("jobacct_gather_cgroup");
	int missing = plugin ? jail_imports_replace(plugin, "fopen", (void *)open_process_file, err) : 0;
	if (missing > 0)
		missing = jail_imports_replace(plugin, "fopen64", (void *)open_process_file, err);
	return missing <= 0 ? missing : jail_fail(err, NULL, 0, "this jobacct_gather reads processes in an unknown way: one that keeps its "
						  "readers waiting keeps slurmd's threads, too, when its user calls sstat");
}
