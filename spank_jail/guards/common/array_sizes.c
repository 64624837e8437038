/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses messages that make slurmctld, slurmd or slurmdbd allocate huge arrays. job_submit_jail.c, slurm/guards.c
 * and service_guard.c call it.
 *
 * A message says how many elements of an array follow, and Slurm allocates them before it reads the first. 40 bytes
 * can ask for four billion. Where the kernel grants such memory (vm.overcommit_memory=1, as on Kubernetes), the
 * daemon then scans 200 GB of zeros, a minute of processor time, for anybody who sends that.
 */
#define _GNU_SOURCE
#include "array_sizes.h"

#include "imported_functions.h"

/* The longest that were seen are of some bytes for each node. */
#define MOST_BYTES ((size_t)64 << 20)

static void *(*own_make)(size_t count, size_t size, bool clear, bool may_fail, const char *file, int line, const char *function);

bool jail_array_fits(size_t count, size_t size)
{
	return count <= 1 || !size || count <= MOST_BYTES / size;
}

/* In place of slurm_xcalloc of Slurm, which ends the daemon where there is no memory, unless it `may_fail`: so it is asked for what
 * messages say. One element is the text or the whole of a message, which have bounds of their own. */
static void *make(size_t count, size_t size, bool clear, bool may_fail, const char *file, int line, const char *function)
{
	return may_fail && !jail_array_fits(count, size) ? NULL : own_make(count, size, clear, may_fail, file, line, function);
}

int jail_array_sizes_guard(const struct link_map *libslurm, struct jail_error *err)
{
	return libslurm ? jail_imports_wrap(libslurm, "slurm_xcalloc", (void *)make, &own_make, err) : 1;
}
