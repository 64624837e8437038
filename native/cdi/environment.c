/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the environment variables that the specifications of a plan's cdi lines set, for the task or session that
 * enters the jail. native/jail/enter.c, spank_jail/pam and spank_jail/slurm/open_step.c call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cdi.h"
#include "native/mount/apply_options.h"

void jail_environment_free(struct jail_environment *environment)
{
	for (size_t i = 0; i < environment->n; i++)
		free(environment->variables[i]);
	free(environment->variables);
	memset(environment, 0, sizeof(*environment));
}

static int add(struct jail_environment *environment, const struct jail_cdi_strings *more, struct jail_error *err)
{
	if (!more->n)
		return 0;
	char **grown = realloc(environment->variables, (environment->n + more->n) * sizeof(*grown));

	if (!grown)
		return jail_fail(err, "realloc", ENOMEM, "not enough memory for the environment");
	environment->variables = grown;
	for (size_t i = 0; i < more->n; i++) {
		char *copy = strdup(more->items[i]);
		if (!copy)
			return jail_fail(err, "strdup", ENOMEM, "not enough memory for the environment");
		environment->variables[environment->n++] = copy;
	}
	return 0;
}

static int add_entry(const struct jail_entry *entry, bool trust_owners, struct jail_environment *environment,
		     struct jail_error *err)
{
	struct jail_cdi_found found;

	if (jail_cdi_find(entry, trust_owners, &found, err))
		return -1;
	int result = jail_cdi_check(&found, err) || add(environment, &found.spec.edits.environment, err) ||
		     add(environment, &found.device->edits.environment, err) ? -1 : 0;
	jail_cdi_spec_free(&found.spec);
	return result;
}

int jail_cdi_environment(const struct jail_plan *plan, struct jail_environment *environment,
			 struct jail_error *err)
{
	memset(environment, 0, sizeof(*environment));
	for (size_t i = 0; i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		if (entry->type != JAIL_CDI || (entry->only_if && access(entry->only_if, F_OK)))
			continue;
		if (!add_entry(entry, plan->trust_owners, environment, err) || jail_entry_forgives(entry, err))
			continue;
		jail_environment_free(environment);
		return jail_error_at(err, plan->file, entry->line, entry->target);
	}
	return 0;
}
