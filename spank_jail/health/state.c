/* SPDX-License-Identifier: Apache-2.0 */
/* Counts failed and passed runs of each check in a file in /run, because a check must fail several times to drain a
 * node. node_health.c calls it. */
#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"

#define MOST_STATE_BYTES (64 * 1024)

static bool read_entry(char *line, struct health_entry *entry)
{
	int sick, end = 0;

	if (sscanf(line, "%31s %c %d %u %u %lld %32s %n", entry->name, &entry->verdict, &sick, &entry->passes, &entry->could_not,
		   &entry->at, entry->history, &end) != 7 || !end)
		return false;
	entry->sick = sick == 1;
	if (!strcmp(entry->history, "-"))
		entry->history[0] = 0;
	snprintf(entry->text, sizeof(entry->text), "%s", line + end);
	return entry->history[strspn(entry->history, "PF")] == 0;
}

void health_state_read(struct health_state *state, const char *file)
{
	scoped_free char *text = text_read(AT_FDCWD, file, MOST_STATE_BYTES, NULL, &(struct jail_error){ 0 });
	char *rest = text, *line;

	*state = (struct health_state){ 0 };
	while (rest && state->n < HEALTH_MOST_CHECKS && (line = strsep(&rest, "\n")))
		if (read_entry(line, &state->entries[state->n]))
			state->n++;
}

int health_state_write(const struct health_state *state, const char *file)
{
	scoped_buffer text = { 0 };

	for (size_t i = 0; i < state->n; i++) {
		const struct health_entry *one = &state->entries[i];
		scoped_free char *line = text_format("%s %c %d %u %u %lld %s %s\n", one->name, one->verdict, one->sick, one->passes,
						     one->could_not, one->at, one->history[0] ? one->history : "-", one->text);
		text_append_string(&text, line);
	}
	return text_replace(file, text.text, text.length, 0600);
}

struct health_entry *health_state_entry(struct health_state *state, const char *name)
{
	for (size_t i = 0; i < state->n; i++)
		if (!strcmp(state->entries[i].name, name))
			return &state->entries[i];
	if (state->n == HEALTH_MOST_CHECKS)
		abort(); /* there are no more checks than that, and others were forgotten */
	struct health_entry *entry = &state->entries[state->n++];
	*entry = (struct health_entry){ .verdict = HEALTH_NEVER };
	snprintf(entry->name, sizeof(entry->name), "%s", name);
	return entry;
}

void health_state_keep(struct health_state *state, const struct health_config *config)
{
	size_t kept = 0;

	for (size_t i = 0; i < state->n; i++)
		if (health_config_find(config, state->entries[i].name))
			state->entries[kept++] = state->entries[i];
	state->n = kept;
}

/* The last `of` verdicts. */
static void remember(char *history, char verdict, size_t of)
{
	size_t length = strlen(history);

	if (length >= of) {
		memmove(history, history + (length - of + 1), of);
		length = of - 1;
	}
	history[length] = verdict;
	history[length + 1] = 0;
}

static unsigned failures(const char *history)
{
	unsigned n = 0;

	for (; *history; history++)
		n += *history == HEALTH_FAILED;
	return n;
}

void health_state_count(struct health_entry *entry, const struct health_check *check, const struct health_result *result,
			long long now, bool at_once)
{
	if (result->verdict == HEALTH_RUNS)
		return;
	entry->verdict = (char)result->verdict;
	entry->at = now;
	memcpy(entry->text, result->text, sizeof(entry->text));
	entry->could_not = result->verdict == HEALTH_COULD_NOT_RUN ? entry->could_not + 1 : 0;
	/* Neither a strike nor a pass. */
	if (result->verdict == HEALTH_COULD_NOT_RUN)
		return;
	remember(entry->history, entry->verdict, check->of);
	entry->passes = result->verdict == HEALTH_PASSED ? entry->passes + 1 : 0;
	if (result->verdict == HEALTH_FAILED && (at_once || failures(entry->history) >= check->strikes))
		entry->sick = true;
	if (entry->sick && entry->passes >= check->passes) {
		entry->sick = false;
		entry->history[0] = 0;
	}
}

void health_state_forgive(struct health_entry *entry)
{
	entry->sick = false;
	entry->history[0] = 0;
	entry->passes = 0;
}
