/* SPDX-License-Identifier: Apache-2.0 */
/* Reports a node's health: prints it, writes it to a file for the metrics exporter, and sets the node's comment in
 * Slurm. node_health.c calls it. */
#define _GNU_SOURCE
#include "tell.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "controller.h"
#include "native/base/scoped.h"

#define COMMENT_MARK "[cellblock:health] "

static const char *word_of(char verdict)
{
	switch (verdict) {
	case HEALTH_PASSED: return "passed";
	case HEALTH_FAILED: return "failed";
	case HEALTH_COULD_NOT_RUN: return "could not run";
	default: return "no verdict yet";
	}
}

static const struct health_entry *entry_of(const struct health_state *state, const char *name)
{
	static const struct health_entry none = { .verdict = HEALTH_NEVER };

	for (size_t i = 0; i < state->n; i++)
		if (!strcmp(state->entries[i].name, name))
			return &state->entries[i];
	return &none;
}

/* Bytes that are not ASCII, which a check may print in any encoding, become "?". */
static void print_json_string(const char *text)
{
	putchar('"');
	for (; *text; text++)
		if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else
			putchar(*text < ' ' || *text > '~' ? '?' : *text);
	putchar('"');
}

static void show_json(const struct health_check *check, const struct health_entry *entry)
{
	printf("{\"check\": \"%s\", \"verdict\": \"%s\", \"sick\": %s, \"action\": \"%s\", \"history\": \"%s\", \"at\": %lld, \"text\": ",
	       check->name, word_of(entry->verdict), entry->sick ? "true" : "false", check->drains ? "drain" : "warn",
	       entry->history, entry->at);
	print_json_string(entry->text);
	putchar('}');
}

void health_show(const struct health_config *config, const struct health_state *state, const char *node, bool as_json)
{
	const char *between = "";

	if (as_json)
		printf("{\"node\": \"%s\", \"checks\": [", node);
	for (size_t i = 0; i < config->n; i++) {
		const struct health_check *check = &config->checks[i];
		const struct health_entry *entry = entry_of(state, check->name);

		if (check->off)
			continue;
		if (as_json) {
			printf("%s", between);
			show_json(check, entry);
			between = ", ";
		} else {
			printf("%-18s %-15s %s%s\n", check->name, word_of(entry->verdict), entry->sick ? "(sick) " : "",
			       entry->text);
		}
	}
	if (as_json)
		printf("]}\n");
}

/* What the exporter calls verdicts. */
static int number_of(char verdict)
{
	switch (verdict) {
	case HEALTH_PASSED: return 0;
	case HEALTH_FAILED: return 1;
	case HEALTH_COULD_NOT_RUN: return 2;
	default: return 3;
	}
}

static void sample(struct text_buffer *text, const char *name, const char *check, int value)
{
	scoped_free char *line = text_format("cellblock_health_%s{check=\"%s\"} %d\n", name, check, value);

	text_append_string(text, line);
}

void health_tell_metrics(const struct health_turn *turn, enum health_standing standing)
{
	scoped_free char *path = text_format("%s/metrics", turn->folder);
	scoped_buffer text = { 0 };
	const struct health_entry *sick = health_sick(turn);

	for (size_t i = 0; i < turn->config->n; i++) {
		const struct health_check *check = &turn->config->checks[i];
		const struct health_entry *entry = entry_of(turn->state, check->name);

		if (check->off)
			continue;
		sample(&text, "verdict", check->name, number_of(entry->verdict));
		/* The file is short: the exporter takes none that is long (images/metrics, jail-records). */
		if (entry->sick)
			sample(&text, "sick", check->name, 1);
		if (sick && entry == sick && standing == HEALTH_OVER_BUDGET)
			sample(&text, "over_budget", check->name, 1);
	}
	(void)text_replace(path, text.text, text.length, 0600);
}

static void append_names(struct text_buffer *text, const struct health_turn *turn, char verdict)
{
	const char *before = verdict == HEALTH_FAILED ? "; failed: " : "; could not run: ";

	for (size_t i = 0; i < turn->config->n; i++) {
		const struct health_check *check = &turn->config->checks[i];
		if (check->off || entry_of(turn->state, check->name)->verdict != verdict)
			continue;
		text_append_string(text, before);
		text_append_string(text, check->name);
		before = ", ";
	}
}

/* Names alone: a text that changes, as that of a disk that fills, would have slurmctld told in each turn. */
static void summarize(const struct health_turn *turn, enum health_standing standing, struct text_buffer *text)
{
	const struct health_entry *sick = health_sick(turn);
	unsigned passed = 0;

	for (size_t i = 0; i < turn->config->n; i++)
		passed += !turn->config->checks[i].off &&
			  entry_of(turn->state, turn->config->checks[i].name)->verdict == HEALTH_PASSED;
	scoped_free char *first = text_format(COMMENT_MARK "%u passed", passed);
	text_append_string(text, first);
	append_names(text, turn, HEALTH_FAILED);
	append_names(text, turn, HEALTH_COULD_NOT_RUN);
	if (standing == HEALTH_OVER_BUDGET && sick) {
		scoped_free char *last = text_format("; not drained for %s, which has drained too many nodes", sick->name);
		text_append_string(text, last);
	}
}

int health_tell_comment(const struct health_turn *turn, enum health_standing standing, struct jail_error *err)
{
	scoped_free char *path = text_format("%s/comment", turn->folder);
	scoped_free char *told = text_read(AT_FDCWD, path, 4096, NULL, &(struct jail_error){ 0 });
	scoped_buffer text = { 0 };
	struct health_node record;

	if (standing == HEALTH_UNKNOWN)
		return 0;
	summarize(turn, standing, &text);
	if (told && !strcmp(told, text.text))
		return 0;
	if (health_controller_node(turn->node, &record, err))
		return -1;
	if (!record.known)
		return 0;
	bool theirs = record.comment[0] && strcmp(record.comment, "(null)") && !text_starts(record.comment, COMMENT_MARK);
	if (!theirs && strcmp(record.comment, text.text) && health_controller_comment(turn->node, text.text, err))
		return -1;
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return fd < 0 ? 0 : text_write(fd, text.text, text.length);
}
