/* SPDX-License-Identifier: Apache-2.0 */
/* Options for mounting the lines of a mount plan, and the report of lines that are left out. It is apart from
 * native/jail/tree.h, which mounts them, because native/cdi mounts lines as well. */
#ifndef JAIL_APPLY_OPTIONS_H
#define JAIL_APPLY_OPTIONS_H

#include <stdbool.h>

#include "isolation_level.h"
#include "native/base/error.h"
#include "plan.h"

/* At level pid the lines of a plan are applied in two places: what shows processes, by one of them. */
enum jail_part { JAIL_PART_ALL, JAIL_PART_PROC, JAIL_PART_OTHERS };

/* How a plan is applied. All pointers but `plan` may be NULL. */
struct jail_apply_options {
	const struct jail_plan *plan;
	enum jail_level level;
	/* One for each entry: a complete mount, attached nowhere, that is used instead of a new one, or -1. What
	 * is used is the tree's from then on, and -1 afterwards. */
	int *mounts;
	/* Hears of each entry that is left out because of nofail or x-jail.if; one line, no newline. */
	void (*notice)(void *context, const char *text);
	void *context;
	enum jail_part part;
};

/* Tells options->notice that `entry`, or a part of it, is left out. */
void jail_report_left_out(const struct jail_apply_options *options, const struct jail_entry *entry, const char *why);

/* What nofail forgives: something is not there. Anything else (no permission, a full volume, a stale
 * handle) would be hidden trouble. */
bool jail_entry_forgives(const struct jail_entry *entry, const struct jail_error *err);

#endif
