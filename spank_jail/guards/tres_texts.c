/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the texts of resources of a user's step in slurmctld. job_submit_jail.c calls it.
 *
 * Of jobs, slurmctld takes 1,024 letters; of steps (srun --gres, --tres-per-task) it has no bound, and copies all that is left of
 * the text for each resource, its locks held: 200,000 times "cpu=1," took eight seconds, and the time goes with the square.
 */
#define _GNU_SOURCE
#include "tres_texts.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "imported_functions.h"

/* So slurmctld has it for jobs. */
#define LONGEST 1024

static bool (*own_valid)(const char *text, bool of_gres);

/* In place of assoc_mgr_valid_tres_cnt of Slurm. */
static bool is_valid(const char *text, bool of_gres)
{
	return (!text || strnlen(text, LONGEST + 1) <= LONGEST) && own_valid(text, of_gres);
}

int jail_tres_texts_guard(const struct link_map *slurmctld, struct jail_error *err)
{
	void *found = dlsym(RTLD_DEFAULT, "assoc_mgr_valid_tres_cnt");

	if (!found)
		return 1;
	memcpy(&own_valid, &found, sizeof(found));
	return jail_imports_replace(slurmctld, "assoc_mgr_valid_tres_cnt", (void *)is_valid, err);
}
