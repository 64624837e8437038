/* SPDX-License-Identifier: Apache-2.0 */
/* Asks slurmctld about this node and drained ones, and drains, resumes or comments this one, by scontrol and sinfo.
 * drain.c and tell.c call it.
 *
 * It does not use libslurm: most runs have nothing to tell slurmctld, and loading it would cost each more than all
 * checks.
 */
#define _GNU_SOURCE
#include "controller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/program.h"
#include "native/base/scoped.h"
#include "native/base/text.h"
#include "reason.h"

/* Each: a turn has 60 s. */
#define ANSWER_S 12
/* The record of a node; a line for each node and partition. */
#define MOST_RECORD (256 * 1024)
#define MOST_LIST (64 * 1024 * 1024)

/* Runs a command of Slurm's; what it says, and its status, or -1. */
static int ask(char *const *words, size_t most, struct text_buffer *output, struct jail_error *err)
{
	const struct program program = { .arguments = words, .output = output, .seconds = ANSWER_S, .most = most };

	return program_run(&program, err);
}

static int tell(char *const *words, struct jail_error *err)
{
	scoped_buffer output = { 0 };
	int status = ask(words, MOST_RECORD, &output, err);

	if (status > 0)
		jail_fail(err, NULL, 0, "%s %s: status %d: %s", words[0], words[1], status,
			  output.text ? jail_one_line(output.text) : "no word from it");
	return status ? -1 : 0;
}

/* Of a line "   KEY=VALUE": the value, to the line's end. */
static void line_of(const char *text, const char *key, char *value, size_t size)
{
	scoped_free char *start = text_format("\n   %s=", key);
	const char *found = text ? strstr(text, start) : NULL;

	*value = 0;
	if (found) {
		found += strlen(start);
		snprintf(value, size, "%.*s", (int)strcspn(found, "\n"), found);
	}
}

/* " [root@2026-11-26T18:21:31]" at the end is Slurm's. */
static void cut_giver(char *reason)
{
	size_t length = strlen(reason);
	char *open = strrchr(reason, '[');

	if (length && reason[length - 1] == ']' && open > reason + 1 && open[-1] == ' ' && strchr(open, '@'))
		open[-1] = 0;
}

int health_controller_node(const char *node, struct health_node *record, struct jail_error *err)
{
	scoped_free char *name = text_copy(node, strlen(node));
	/* The words of an error are looked at. */
	char script[] = "exec scontrol show node \"$0\" 2>&1";
	char sh[] = "sh", option[] = "-c";
	char *words[] = { sh, option, script, name, NULL };
	scoped_buffer output = { 0 };
	char state[256];
	int status = ask(words, MOST_RECORD, &output, err);

	*record = (struct health_node){ 0 };
	if (status < 0)
		return -1;
	if (status) {
		if (output.text && strcasestr(output.text, "not found"))
			return 0;
		return jail_fail(err, NULL, 0, "scontrol show node %s: status %d: %s", node, status,
				 output.text ? jail_one_line(output.text) : "no word from it");
	}
	line_of(output.text, "State", state, sizeof(state));
	state[strcspn(state, " ")] = 0;
	record->known = *state;
	record->drains = strstr(state, "DRAIN");
	line_of(output.text, "Reason", record->reason, sizeof(record->reason));
	cut_giver(record->reason);
	line_of(output.text, "Comment", record->comment, sizeof(record->comment));
	return 0;
}

bool health_controller_job_leaves_out(const char *job, const char *check)
{
	static const char key[] = "health-leave-out=";
	scoped_list words = { 0 };
	scoped_buffer output = { 0 };
	char comment[1024], *found, *name;

	for (const char *const *word = (const char *const[]){ "scontrol", "show", "job", job, NULL }; *word; word++)
		text_list_add(&words, *word);
	if (ask(words.items, MOST_RECORD, &output, &(struct jail_error){ 0 }))
		return false;
	line_of(output.text, "Comment", comment, sizeof(comment));
	if (!(found = strstr(comment, key)))
		return false;
	found += sizeof(key) - 1;
	found[strcspn(found, " ;")] = 0;
	while ((name = strsep(&found, ",")))
		if (!strcmp(name, check))
			return true;
	return false;
}

static int update(const char *node, const char *first, const char *second, struct jail_error *err)
{
	scoped_list words = { 0 };
	scoped_free char *name = text_format("nodename=%s", node);

	text_list_add(&words, "scontrol");
	text_list_add(&words, "update");
	text_list_add(&words, name);
	text_list_add(&words, first);
	if (second)
		text_list_add(&words, second);
	return tell(words.items, err);
}

int health_controller_drain(const char *node, const char *reason, struct jail_error *err)
{
	scoped_free char *word = text_format("reason=%s", reason);

	return update(node, "state=drain", word, err);
}

/* UNDRAIN leaves a node that does not answer what it is. */
int health_controller_resume(const char *node, struct jail_error *err)
{
	return update(node, "state=undrain", NULL, err);
}

int health_controller_comment(const char *node, const char *comment, struct jail_error *err)
{
	scoped_free char *word = text_format("comment=%s", comment);

	return update(node, word, NULL, err);
}

int health_controller_count(const char *check, long long since, long long at, const char *node, struct health_drains *drains,
			    struct jail_error *err)
{
	char *words[] = { text_copy("sinfo", 5), text_copy("--noheader", 10), text_copy("--all", 5), text_copy("--Node", 6),
			  text_copy("--format=%N|%T|%E", 17), NULL };
	scoped_buffer output = { 0 };
	scoped_free char *before = text_copy("", 0);
	int status = ask(words, MOST_LIST, &output, err);
	char *rest = output.text, *line;

	for (char **word = words; *word; word++)
		free(*word);
	*drains = (struct health_drains){ 0 };
	if (status)
		return status < 0 ? -1 : jail_fail(err, NULL, 0, "sinfo: status %d: slurmctld does not answer", status);
	while (rest && (line = strsep(&rest, "\n"))) {
		char *reason = line, *name = strsep(&reason, "|"), *state = reason ? strsep(&reason, "|") : NULL;
		struct health_reason theirs;

		/* A node has a line for each of its partitions, one after another. */
		if (!state || !strcmp(name, before))
			continue;
		free(before);
		before = text_copy(name, strlen(name));
		drains->nodes++;
		if (!strcmp(name, node) || !reason || !strstr(state, "drain") || !health_reason_read(reason, &theirs) ||
		    strcmp(theirs.check, check) || theirs.at < since)
			continue;
		drains->drained++;
		drains->before += theirs.at < at || (theirs.at == at && strcmp(name, node) < 0);
	}
	return 0;
}
