/* SPDX-License-Identifier: Apache-2.0 */
/* Lengthens the arrays in which a finished step reports what it used, to the length that slurmctld reads.
 * job_submit_jail.c calls it.
 *
 * A user may report that his step is over, with one number for each kind of resource. slurmctld reads as many as it
 * knows kinds, whatever the message has (jobacctinfo_aggregate, Slurm 22.05 to 26.05): it crashes if there are none,
 * and with fewer it tells the user what lies behind them in its memory.
 */
#define _GNU_SOURCE
#include "step_arrays.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "spank_jail/guards/common/imported_functions.h"

/* Slurm's own, as of its g_tres_count, slurm_xrecalloc, jobacctinfo_unpack and unpack64_array. */
static const uint32_t *kinds;
static void *(*resize)(void **place, size_t count, size_t size, bool clear, bool may_fail, const char *file, int line, const char *function);
static int (*own_read_step)(void **step, uint16_t version, uint16_t protocol, void *buffer, bool allocate);
static int (*own_read_array)(uint64_t **numbers, uint32_t *count, void *buffer);
/* Whether what this thread reads now is a step's. */
static __thread bool of_a_step;

static int read_step(void **step, uint16_t version, uint16_t protocol, void *buffer, bool allocate)
{
	of_a_step = true;
	int result = own_read_step(step, version, protocol, buffer, allocate);
	of_a_step = false;
	return result;
}

static int read_array(uint64_t **numbers, uint32_t *count, void *buffer)
{
	int result = own_read_array(numbers, count, buffer);

	if (!of_a_step || result || *count >= *kinds)
		return result;
	resize((void **)numbers, *kinds, sizeof(**numbers), true, false, __FILE__, __LINE__, __func__);
	/* So Slurm writes that there is no figure: INFINITE64. */
	memset(*numbers + *count, 0xff, (*kinds - *count) * sizeof(**numbers));
	return result;
}

int jail_step_arrays_guard(const struct link_map *libslurm, struct jail_error *err)
{
	kinds = dlsym(RTLD_DEFAULT, "g_tres_count");
	*(void **)&resize = dlsym(RTLD_DEFAULT, "slurm_xrecalloc");
	if (!libslurm || !kinds || !resize)
		return 1;
	int missing = jail_imports_wrap(libslurm, "unpack64_array", (void *)read_array, &own_read_array, err);
	return missing ? missing : jail_imports_wrap(libslurm, "jobacctinfo_unpack", (void *)read_step, &own_read_step, err);
}
