/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a mount plan as it was understood, for `jail-enter --print`. jail_enter.c calls it. */
#define _GNU_SOURCE
#include "print.h"

#include <string.h>

#include "native/base/sys.h"

/* fstab(5): blanks and backslashes in a field are octal escapes. */
static void print_field(FILE *stream, const char *text)
{
	for (; *text; text++) {
		if (strchr(" \t\n\\", *text))
			fprintf(stream, "\\%03o", (unsigned)(unsigned char)*text);
		else
			fputc(*text, stream);
	}
}

static void print_options(FILE *stream, const struct jail_entry *entry, enum jail_level level)
{
	static const struct { uint64_t attribute; const char *set, *unset; } flags[] = {
		{ MOUNT_ATTR_RDONLY, "ro", "rw" },
		{ MOUNT_ATTR_NOSUID, "nosuid", "suid" },
		{ MOUNT_ATTR_NODEV, "nodev", "dev" },
		{ MOUNT_ATTR_NOEXEC, "noexec", "exec" },
	};

	uint64_t attributes = entry->attributes;
	if (level >= JAIL_LEVEL_CAPABILITIES && entry->type == JAIL_SYSFS)
		attributes |= MOUNT_ATTR_RDONLY;
	if (entry->type == JAIL_BIND || entry->type == JAIL_RBIND)
		fprintf(stream, "%s,", jail_type_name(entry->type));
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		fprintf(stream, "%s%s", i ? "," : "",
			attributes & flags[i].attribute ? flags[i].set : flags[i].unset);
	for (size_t i = 0; i < entry->n_parameters; i++) {
		fprintf(stream, ",%s=", entry->parameters[i].key);
		print_field(stream, entry->parameters[i].value);
	}
	if (entry->create != JAIL_CREATE_NONE)
		fprintf(stream, ",x-create=%s", entry->create == JAIL_CREATE_DIR ? "dir" : "file");
	if (entry->nofail)
		fputs(",nofail", stream);
	if (entry->type == JAIL_TMPFS || entry->type == JAIL_DEV)
		fputs(entry->scope == JAIL_SCOPE_JOB ? ",x-jail.per-job" : ",x-jail.per-step", stream);
	if (entry->only_if) {
		fputs(",x-jail.if=", stream);
		print_field(stream, entry->only_if);
	}
}

void jail_print(FILE *stream, const struct jail_plan *plan, enum jail_level level)
{
	fprintf(stream, "# level %s%s\n", jail_level_name(level), level >= JAIL_LEVEL_CAPABILITIES
		? ": parts of proc and sysfs are covered or read-only" : "");
	for (size_t i = 0; i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		bool bind = entry->type == JAIL_BIND || entry->type == JAIL_RBIND;
		print_field(stream, entry->source);
		fputc(' ', stream);
		print_field(stream, entry->target);
		fprintf(stream, " %s ", bind ? "none" : jail_type_name(entry->type));
		print_options(stream, entry, level);
		fputc('\n', stream);
	}
}
