/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the length of resource texts (TRES, such as "cpu=4") in requests for steps. job_submit_jail.c calls it.
 *
 * slurmctld takes 1,024 letters of a job's, but any number of a step's (srun --gres, --tres-per-task). It copies the
 * rest of the text for each resource, with its locks held: 200,000 times "cpu=1," took eight seconds. Then it
 * compares each GRES with all before it.
 */
#define _GNU_SOURCE
#include "tres_texts.h"

#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "spank_jail/guards/common/imported_functions.h"

/* So slurmctld has it for jobs. */
#define LONGEST 1024
/* Of one step: for each CPU, step, node, socket, task, and their memory. */
#define TEXTS 6

static bool (*own_valid)(const char *text, bool of_gres);
/* Releases differ in what follows the texts, and in how much: all is passed on. */
static int (*own_validate)(const char *, const char *, const char *, const char *, const char *, const char *, uintptr_t, uintptr_t,
			   void **, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static bool is_short(const char *text)
{
	return !text || strnlen(text, LONGEST + 1) <= LONGEST;
}

/* In place of assoc_mgr_valid_tres_cnt and gres_step_state_validate of Slurm. */
static bool is_valid(const char *text, bool of_gres)
{
	return is_short(text) && own_valid(text, of_gres);
}

static int validate(const char *cpus, const char *step, const char *node, const char *socket, const char *task, const char *memory,
		    uintptr_t seventh, uintptr_t eighth, void **list, uintptr_t tenth, uintptr_t eleventh, uintptr_t twelfth,
		    uintptr_t thirteenth, uintptr_t fourteenth, uintptr_t fifteenth, uintptr_t sixteenth)
{
	const char *const texts[TEXTS] = { cpus, step, node, socket, task, memory };

	for (int i = 0; i < TEXTS; i++)
		if (!is_short(texts[i])) {
			*list = NULL;
			return ESLURM_INVALID_GRES;
		}
	return own_validate(cpus, step, node, socket, task, memory, seventh, eighth, list, tenth, eleventh, twelfth, thirteenth,
			    fourteenth, fifteenth, sixteenth);
}

int jail_tres_texts_guard(const struct link_map *slurmctld, struct jail_error *err)
{
	const struct {
		const char *name;
		void *function, *own;
		bool needed;
	} functions[] = {
		{ "gres_step_state_validate", (void *)validate, &own_validate, true },
		/* 22.05 looks at a step's with the other alone. */
		{ "assoc_mgr_valid_tres_cnt", (void *)is_valid, &own_valid, false },
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int missing = jail_imports_wrap(slurmctld, functions[i].name, functions[i].function, functions[i].own, err);
		if (missing < 0 || (missing && functions[i].needed))
			return missing;
	}
	return 0;
}
