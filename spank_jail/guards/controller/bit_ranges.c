/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds ranges with a step that a user sends to slurmctld. job_submit_jail.c calls it.
 *
 * Slurm writes down each number of a range as "0-1000000000:2" before it looks whether its bitmap has so many: 4 GB for these
 * letters of `sbatch --dependency=afterok:1_[0-1000000000:2]`, with the locks held. It counts them in 32 bits: of
 * "-1073741824-1073741824:1" it has room for a few, and writes two thousand million.
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
