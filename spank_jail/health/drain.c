/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether node-health drains this node, or resumes it after a drain of its own. node_health.c calls it.
 *
 * It counts drained nodes before and after its own drain: nodes that find the same fault at the same moment all see
 * none before. Those beyond the budget, in order of time and name, take their drains back.
 */
#define _GNU_SOURCE
#include "drain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "controller.h"
#include "native/base/scoped.h"
#include "reason.h"

/* For the drains of others to be seen. */
#define SETTLE_S 2
/* Between two questions of a node that is over the budget; it does not wait with the prolog of each job for them. */
#define ASK_AGAIN_S 600

/* What the machine is called in reasons: another start of it is another instance. */
static void instance_of(const struct health_turn *turn, char *name, size_t size)
{
	if (turn->judged) {
		snprintf(name, size, "active");
		return;
	}
	scoped_free char *id = text_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 100, NULL, &(struct jail_error){ 0 });

	snprintf(name, size, "%.8s", id ? id : "unknown");
}

/* A file of what is remembered. */
static bool has(const struct health_turn *turn, const char *name)
{
	scoped_free char *path = text_format("%s/%s", turn->folder, name);

	return !access(path, F_OK);
}

static void note(const struct health_turn *turn, const char *name, const char *text)
{
	scoped_free char *path = text_format("%s/%s", turn->folder, name);

	if (!text) {
		unlink(path);
		return;
	}
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0)
		(void)text_write(fd, text, strlen(text));
}

void health_registers_drained(const struct health_turn *turn, const char *reason)
{
	note(turn, "registers", reason);
}

/* Gives a drain that has no reason the one with which the node registered. An administrator's has one: Slurm asks for it. */
static void complete_reason(const struct health_turn *turn, struct health_node *record)
{
	scoped_free char *path = text_format("%s/registers", turn->folder);
	scoped_free char *reason = text_read(AT_FDCWD, path, sizeof(record->reason) - 1, NULL, &(struct jail_error){ 0 });

	if (reason && record->drains && !record->reason[0]) {
		if (health_controller_drain(turn->node, reason, &(struct jail_error){ 0 }))
			return;
		snprintf(record->reason, sizeof(record->reason), "%s", reason);
	}
	note(turn, "registers", NULL);
}

const struct health_entry *health_sick(const struct health_turn *turn)
{
	for (size_t i = 0; i < turn->config->n; i++) {
		const struct health_check *check = &turn->config->checks[i];
		for (size_t j = 0; j < turn->state->n && check->drains && !check->off; j++)
			if (turn->state->entries[j].sick && !strcmp(turn->state->entries[j].name, check->name))
				return &turn->state->entries[j];
	}
	return NULL;
}

void health_reason_of(const struct health_turn *turn, const struct health_entry *entry, char *buffer, size_t size)
{
	struct health_reason reason = { .at = turn->now };
	/* What failed first may have passed since; its reason is of the last failure then. */
	const char *text = entry->text[0] ? entry->text : "failed";

	snprintf(reason.check, sizeof(reason.check), "%s", entry->name);
	instance_of(turn, reason.instance, sizeof(reason.instance));
	health_reason_write(&reason, text, buffer, size);
}

static unsigned budget(const struct health_config *config, unsigned nodes)
{
	unsigned share = (unsigned)((unsigned long long)nodes * config->percent / 100);

	return share > config->least ? share : config->least;
}

/* Whether `check` may have this node drained since `at`; `first`: it is not drained yet. -1: slurmctld does not answer. */
static int within_budget(const struct health_turn *turn, const char *check, long long at, bool first, struct jail_error *err)
{
	struct health_drains drains;

	if (health_controller_count(check, turn->now - turn->config->within_s, at, turn->node, &drains, err))
		return -1;
	return (first ? drains.drained : drains.before) < budget(turn->config, drains.nodes);
}

static enum health_standing over_budget(struct health_turn *turn, const char *check)
{
	note(turn, "over-budget", check);
	return HEALTH_OVER_BUDGET;
}

/* One that was found lately. */
static bool is_over_budget(const struct health_turn *turn)
{
	scoped_free char *path = text_format("%s/over-budget", turn->folder);
	struct stat st;

	return !stat(path, &st) && time(NULL) - st.st_mtime < ASK_AGAIN_S;
}

static enum health_standing resume(struct health_turn *turn, struct jail_error *err)
{
	if (health_controller_resume(turn->node, err))
		return HEALTH_UNKNOWN;
	note(turn, "drained", NULL);
	return HEALTH_SERVES;
}

static enum health_standing drain(struct health_turn *turn, const struct health_entry *sick, struct jail_error *err)
{
	char reason[1024];
	int fits = within_budget(turn, sick->name, turn->now, true, err);

	if (fits < 0)
		return HEALTH_UNKNOWN;
	if (!fits)
		return over_budget(turn, sick->name);
	health_reason_of(turn, sick, reason, sizeof(reason));
	if (health_controller_drain(turn->node, reason, err))
		return HEALTH_UNKNOWN;
	note(turn, "drained", reason);
	note(turn, "over-budget", NULL);
	sleep(SETTLE_S);
	/* Without an answer the next turn looks. */
	if (within_budget(turn, sick->name, turn->now, false, err))
		return HEALTH_OURS;
	return resume(turn, err) == HEALTH_SERVES ? over_budget(turn, sick->name) : HEALTH_UNKNOWN;
}

/* Whether it passes again: in a row, since what was counted before may be lost. */
static bool is_healthy(struct health_turn *turn, const struct health_check *check)
{
	const struct health_entry *entry = health_state_entry(turn->state, check->name);

	return !entry->sick && entry->passes >= check->passes;
}

/* The node is drained by `reason`, which is ours. */
static enum health_standing look_again(struct health_turn *turn, const struct health_reason *reason, struct jail_error *err)
{
	const struct health_check *check = health_config_find(turn->config, reason->check);
	const struct health_entry *sick = health_sick(turn);

	if (check && !is_healthy(turn, check)) {
		if (reason->at < turn->now - turn->config->within_s || within_budget(turn, check->name, reason->at, false, err))
			return HEALTH_OURS;
		return resume(turn, err) == HEALTH_SERVES ? over_budget(turn, check->name) : HEALTH_UNKNOWN;
	}
	if (check && !check->undo)
		return HEALTH_OURS;
	/* The check is healthy, or left out; another may have found something meanwhile. */
	return sick ? drain(turn, sick, err) : resume(turn, err);
}

/* Somebody took the node back into service: it gets all its chances again. */
static void forgive(struct health_turn *turn)
{
	for (size_t i = 0; i < turn->state->n; i++)
		health_state_forgive(&turn->state->entries[i]);
	note(turn, "drained", NULL);
}

enum health_standing health_settle(struct health_turn *turn, struct jail_error *err)
{
	const struct health_entry *sick = health_sick(turn);
	struct health_reason reason;
	struct health_node record;
	char instance[64];

	if (!sick)
		note(turn, "over-budget", NULL);
	/* Nothing is to be said, and there is no drain of ours: what was there before this start is looked for once. */
	if (!sick && !has(turn, "drained") && !has(turn, "registers") && has(turn, "asked"))
		return HEALTH_SERVES;
	if (sick && !has(turn, "drained") && is_over_budget(turn))
		return HEALTH_OVER_BUDGET;
	if (health_controller_node(turn->node, &record, err))
		return HEALTH_UNKNOWN;
	if (!record.known) {
		jail_fail(err, NULL, 0, "slurmctld does not know node %s yet", turn->node);
		return HEALTH_UNKNOWN;
	}
	note(turn, "asked", "");
	complete_reason(turn, &record);
	if (!record.drains) {
		if (has(turn, "drained")) {
			forgive(turn);
			return HEALTH_SERVES;
		}
		return sick ? drain(turn, sick, err) : HEALTH_SERVES;
	}
	instance_of(turn, instance, sizeof(instance));
	if (health_reason_read(record.reason, &reason) && !strcmp(reason.instance, instance)) {
		note(turn, "drained", record.reason);
		return look_again(turn, &reason, err);
	}
	note(turn, "drained", NULL);
	return HEALTH_OTHERS;
}
