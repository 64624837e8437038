/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of mount plans: any bytes give a plan or an error, and a plan that is printed and read again is
 * the same. */
#define _GNU_SOURCE
#include <string.h>

#include "native/mount/plan.h"
#include "spank_jail/enter/print.h"
#include "native/testing/fuzz.h"

/* The parser's bound of a line. Printed, a line is longer than it was (escapes, defaults spelled out). */
#define LONGEST_LINE 4000

static void check_target(const struct jail_entry *entry)
{
	if (entry->type == JAIL_CDI)
		return;
	MUST(entry->target[0] == '/');
	for (const char *part = entry->target; part; part = strchr(part, '/')) {
		part += strspn(part, "/");
		MUST(strcspn(part, "/") != 2 || strncmp(part, "..", 2));
	}
}

static void check_entry(const struct jail_entry *entry)
{
	bool bind = entry->type == JAIL_BIND || entry->type == JAIL_RBIND;

	check_target(entry);
	MUST(entry->line > 0);
	MUST(!bind || entry->source[0] == '/');
	MUST(bind || entry->type == JAIL_CDI || entry->create != JAIL_CREATE_FILE);
	MUST(strcmp(jail_type_name(entry->type), "?"));
	MUST(!entry->only_if || entry->only_if[0] == '/');
	MUST(entry->n_parameters <= JAIL_MAX_PARAMETERS);
	for (size_t i = 0; i < entry->n_parameters; i++)
		MUST(entry->parameters[i].key[0] && entry->parameters[i].value[0]);
}

static void check_same(const struct jail_entry *a, const struct jail_entry *b)
{
	MUST(!strcmp(a->source, b->source) && !strcmp(a->target, b->target));
	MUST(a->type == b->type && a->attributes == b->attributes && a->create == b->create);
	MUST(a->nofail == b->nofail && a->scope == b->scope && a->n_parameters == b->n_parameters);
	MUST(!a->only_if == !b->only_if && (!a->only_if || !strcmp(a->only_if, b->only_if)));
	for (size_t i = 0; i < a->n_parameters; i++)
		MUST(!strcmp(a->parameters[i].key, b->parameters[i].key) &&
		     !strcmp(a->parameters[i].value, b->parameters[i].value));
}

static size_t longest_line(const char *text)
{
	size_t longest = 0;

	for (; *text; text += strcspn(text, "\n") + 1)
		if (strcspn(text, "\n") > longest)
			longest = strcspn(text, "\n");
	return longest;
}

static char *print(const struct jail_plan *plan, size_t *length)
{
	char *text = NULL;
	FILE *stream = open_memstream(&text, length);

	MUST(stream);
	jail_print(stream, plan, JAIL_LEVEL_FILESYSTEM);
	MUST(!fclose(stream));
	return text;
}

static void check_round_trip(const struct jail_plan *plan)
{
	struct jail_plan again;
	struct jail_error err;
	size_t length, length_again;
	char *text = print(plan, &length), *text_again;

	if (longest_line(text) <= LONGEST_LINE) {
		MUST(!jail_plan_parse(text, length, "printed", &again, &err));
		MUST(again.n_entries == plan->n_entries);
		for (size_t i = 0; i < plan->n_entries; i++)
			check_same(&plan->entries[i], &again.entries[i]);
		text_again = print(&again, &length_again);
		MUST(!strcmp(text, text_again));
		free(text_again);
		jail_plan_free(&again);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jail_plan plan;
	struct jail_error err;

	memset(&err, 0, sizeof(err));
	if (jail_plan_parse((const char *)data, size, "plan", &plan, &err)) {
		must_explain(&err);
		MUST(!strcmp(err.file, "plan") && !plan.entries && !plan.n_entries && !plan.file);
		return 0;
	}
	for (size_t i = 0; i < plan.n_entries; i++)
		check_entry(&plan.entries[i]);
	check_round_trip(&plan);
	jail_plan_free(&plan);
	return 0;
}
