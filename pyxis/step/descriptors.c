/* SPDX-License-Identifier: Apache-2.0 */
/* Closes the descriptors that a process forked from slurmstepd has inherited. step_cleanup.c, runtime.c and
 * pyxis/slurm call it. */
#define _GNU_SOURCE
#include "descriptors.h"

#include <limits.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The next of `kept` from `from` on; UINT_MAX: none. */
static unsigned next_kept(const int *kept, size_t n, unsigned from)
{
	unsigned next = UINT_MAX;

	for (size_t i = 0; i < n; i++)
		if (kept[i] >= 0 && (unsigned)kept[i] >= from && (unsigned)kept[i] < next)
			next = (unsigned)kept[i];
	return next;
}

static void each_gap(const int *kept, size_t n, unsigned flags)
{
	for (unsigned from = 3, next;; from = next + 1) {
		next = next_kept(kept, n, from);
		if (next > from)
			syscall(SYS_close_range, from, next == UINT_MAX ? next : next - 1, flags);
		if (next == UINT_MAX)
			return;
	}
}

void descriptors_close_but(const int *kept, size_t n)
{
	each_gap(kept, n, 0);
}

void descriptors_seal_but(const int *kept, size_t n)
{
	each_gap(kept, n, CLOSE_RANGE_CLOEXEC);
}
