/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the list of nodes from scontrol, and chooses the idle ones whose last measurement is old enough.
 * active_checks.c calls it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "active.h"
#include "native/base/program.h"
#include "native/base/scoped.h"

#define ANSWER_S 60
#define MOST_LIST (64 * 1024 * 1024)
#define MOST_VALUES 4096

/* Of " KEY=VALUE ": the value, without spaces. */
static void field(const char *line, const char *key, char *value, size_t size)
{
	scoped_free char *start = text_format(" %s=", key);
	const char *found = strstr(line, start);

	*value = 0;
	if (found) {
		found += strlen(start);
		snprintf(value, size, "%.*s", (int)strcspn(found, " \n"), found);
	}
}

/* Of "gpu:a100:4(S:0-1),fpga:2": 4. */
static unsigned count_gpus(char *gres)
{
	unsigned sum = 0;
	char *rest = gres, *word;

	while ((word = strsep(&rest, ","))) {
		word[strcspn(word, "(")] = 0;
		const char *number = strrchr(word, ':');
		if (number && text_starts(word, "gpu:"))
			sum += (unsigned)strtoul(number + 1, NULL, 10);
	}
	return sum;
}

/* Idle, and nothing else is said of it: neither drained, nor off, nor planned for a job. */
static bool is_idle(const char *state)
{
	static const char *const harmless[] = { "IDLE", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "CLOUD" };
	scoped_free char *copy = text_copy(state, strlen(state));
	char *rest = copy, *word;
	bool idle = text_starts(state, "IDLE");

	while ((word = strsep(&rest, "+"))) {
		bool known = false;
		for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
			known = known || !strcmp(word, harmless[i]);
		idle = idle && known;
	}
	return idle;
}

void active_parse(struct active_nodes *nodes, char *text)
{
	char *rest = text, *line, state[256], started[32], gres[ACTIVE_NAME_SIZE];

	while (rest && (line = strsep(&rest, "\n"))) {
		if (!text_starts(line, "NodeName="))
			continue;
		line += strlen("NodeName=");
		size_t length = strcspn(line, " ");
		/* It becomes the name of a folder. */
		if (line[0] == '.' || memchr(line, '/', length))
			continue;
		struct active_node *items = reallocarray(nodes->items, nodes->n + 1, sizeof(*items));
		if (!items)
			abort();
		nodes->items = items;
		struct active_node *node = &items[nodes->n++];
		*node = (struct active_node){ 0 };
		snprintf(node->name, sizeof(node->name), "%.*s", (int)length, line);
		field(line, "State", state, sizeof(state));
		field(line, "AvailableFeatures", node->set, sizeof(node->set));
		field(line, "SlurmdStartTime", started, sizeof(started));
		field(line, "Gres", gres, sizeof(gres));
		node->gpus = count_gpus(gres);
		size_t end = strlen(node->set);
		if (node->gpus)
			snprintf(node->set + end, sizeof(node->set) - end, " gpu:%u", node->gpus);
		node->idle = is_idle(state);
		node->drains = strstr(state, "DRAIN");
		node->started = atoll(started);
	}
}

int active_list(struct active_nodes *nodes, struct jail_error *err)
{
	char command[] = "scontrol", option[] = "--oneliner", show[] = "show", what[] = "nodes";
	char *words[] = { command, option, show, what, NULL };
	scoped_buffer output = { 0 };
	const struct program program = { .arguments = words, .output = &output, .seconds = ANSWER_S, .most = MOST_LIST };

	*nodes = (struct active_nodes){ 0 };
	setenv("SLURM_TIME_FORMAT", "%s", 1);
	int status = program_run(&program, err);
	if (status > 0)
		jail_fail(err, NULL, 0, "scontrol show nodes: status %d: slurmctld does not answer", status);
	if (!status && output.text)
		active_parse(nodes, output.text);
	return status ? -1 : 0;
}

static void recall(struct active_node *node, const char *state, long long now, unsigned every_s)
{
	scoped_free char *values = text_format("%s/%s/values", state, node->name);
	scoped_free char *drained = text_format("%s/%s/was-drained", state, node->name);
	scoped_free char *folder = text_format("%s/%s", state, node->name);
	scoped_free char *text = text_read(AT_FDCWD, values, MOST_VALUES, NULL, &(struct jail_error){ 0 });
	long long at = 0;
	int suspicious = 0, length = 0;

	if (!text || sscanf(text, "%lld %d%n", &at, &suspicious, &length) != 2)
		at = 0;
	char *next = at ? text + length : NULL;
	for (int kind = 0; next && kind < ACTIVE_KINDS; kind++)
		node->remembered[kind] = strtod(next, &next);
	if (node->drains) {
		mkdir(folder, 0700);
		close(open(drained, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	/* New here, started again, repaired, in doubt, or not looked at for long. */
	node->due = !at || at > now || node->started > at || suspicious || now - at >= (long long)every_s || !access(drained, F_OK);
}

void active_recall(struct active_nodes *nodes, const char *state, long long now, unsigned every_s)
{
	for (size_t i = 0; i < nodes->n; i++)
		recall(&nodes->items[i], state, now, every_s);
}

void active_remember(const struct active_node *node, const char *state)
{
	scoped_free char *values = text_format("%s/%s/values", state, node->name);
	scoped_free char *drained = text_format("%s/%s/was-drained", state, node->name);
	scoped_buffer text = { 0 };
	scoped_free char *first = text_format("%lld %d", (long long)time(NULL), node->due);

	text_append_string(&text, first);
	for (int kind = 0; kind < ACTIVE_KINDS; kind++) {
		const struct active_result *result = &node->results[kind];
		scoped_free char *word = text_format(" %.3f", result->found == ACTIVE_VALUE ? result->value : 0.0);
		text_append_string(&text, word);
	}
	(void)text_replace(values, text.text, text.length, 0600);
	unlink(drained);
}
