/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the arrays that daemons of Slurm make for a message. job_submit_jail.c, slurm/guards.c and service_guard.c call it.
 *
 * A message says how many elements follow; room for all of them is made before the first is read. Of four billion triggers there is
 * none in a message of 40 bytes, but where the kernel lends memory that it does not have (vm.overcommit_memory=1, as on Kubernetes), or
 * has enough, the daemon then looks through 200 GB of zeros for what to free: a minute of a processor, and 400 MB of page tables, for
 * each message, by whoever sends it.
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
