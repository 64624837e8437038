/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses ranges with a step, such as "0-1000000000:2", that are too large for slurmctld. job_submit_jail.c calls it.
 *
 * slurmctld writes out each number of such a range before it checks the size of its bitmap: 4 GB for `sbatch
 * --dependency=afterok:1_[0-1000000000:2]`, with its locks held. It counts them in 32 bits, so that it writes two
 * thousand million numbers of "-1073741824-1073741824:1" into room for a few.
 */
#define _GNU_SOURCE
#include "bit_ranges.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "spank_jail/guards/common/imported_functions.h"

static int (*own_read)(void *bitmap, const char *text);
static int64_t (*count_bits)(void *bitmap);

/* A number below `end`, and what is behind it. -1: it is none. */
static long read_number(const char **text, long end)
{
	char *rest = NULL;
	long number = isdigit((unsigned char)**text) ? strtol(*text, &rest, 10) : -1;

	if (number >= end)
		return -1;
	*text = rest;
	return number;
}

bool jail_bit_ranges_fit(const char *text, long end)
{
	if (!text || !strchr(text, ':'))
		return true;
	long first = read_number(&text, end);
	if (first < 0 || *text++ != '-')
		return false;
	long last = read_number(&text, end);
	if (last < first || *text++ != ':')
		return false;
	return read_number(&text, end) > 0 && !*text;
}

/* In place of bit_unfmt of Slurm. */
static int read_ranges(void *bitmap, const char *text)
{
	return jail_bit_ranges_fit(text, (long)count_bits(bitmap)) ? own_read(bitmap, text) : -1;
}

int jail_bit_ranges_guard(const struct link_map *slurmctld, struct jail_error *err)
{
	*(void **)&count_bits = dlsym(RTLD_DEFAULT, "bit_size");
	return count_bits ? jail_imports_wrap(slurmctld, "bit_unfmt", (void *)read_ranges, &own_read, err) : 1;
}
