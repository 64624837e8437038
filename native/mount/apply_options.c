/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which failures the option nofail of a mount plan's line excuses, and reports lines that are left out.
 * native/jail/tree.c and native/cdi, which apply plans, call it. */
#define _GNU_SOURCE
#include "apply_options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void jail_report_left_out(const struct jail_apply_options *options, const struct jail_entry *entry, const char *why)
{
	char text[600];
	/* The advice of the error that it would have been. */
	const char *advice = strstr(why, ", or add nofail");
	int length = advice && entry->nofail ? (int)(advice - why) : (int)strlen(why);

	if (!options->notice)
		return;
	snprintf(text, sizeof(text), "%s:%d: %s: left out: %.*s", options->plan->file, entry->line, entry->target,
		 length, why);
	options->notice(options->context, jail_one_line(text));
}

bool jail_entry_forgives(const struct jail_entry *entry, const struct jail_error *err)
{
	return entry->nofail && (err->number == ENOENT || err->number == ENOTDIR || err->number == ENODEV);
}
