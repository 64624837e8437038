/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the third and fourth field of a mount plan's line, type and options. plan.c, filesystem.c and
 * spank_jail/enter/print.c call it. */
#define _GNU_SOURCE
#include <string.h>

#include "plan.h"
#include "native/base/sys.h"

static const struct {
	const char *name;
	enum jail_type type;
	uint64_t defaults;              /* MOUNT_ATTR_* set unless the opposite option is given */
	const char *const parameters[JAIL_MAX_PARAMETERS]; /* what fsconfig may be given, NULL-terminated */
} types[] = {
	/* Binds first: "none" means one of them, by its option. */
	{ "bind", JAIL_BIND, MOUNT_ATTR_NODEV, { NULL } },
	{ "rbind", JAIL_RBIND, MOUNT_ATTR_NODEV, { NULL } },
	{ "tmpfs", JAIL_TMPFS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
	  { "size", "mode", "uid", "gid", "nr_inodes", NULL } },
	{ "proc", JAIL_PROC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
	  { "hidepid", "gid", "subset", NULL } },
	{ "sysfs", JAIL_SYSFS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, { NULL } },
	{ "devpts", JAIL_DEVPTS, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
	  { "gid", "mode", "ptmxmode", "max", NULL } },
	{ "mqueue", JAIL_MQUEUE, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, { NULL } },
	{ "dev", JAIL_DEV, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, { "size", "mode", NULL } },
	/* Where the specifications are, instead of the usual directories. */
	{ "cdi", JAIL_CDI, 0, { "spec-dir", NULL } },
};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

static const struct {
	const char *name;
	uint64_t set, unset;
} option_flags[] = {
	{ "ro", MOUNT_ATTR_RDONLY, 0 },     { "rw", 0, MOUNT_ATTR_RDONLY },
	{ "nosuid", MOUNT_ATTR_NOSUID, 0 }, { "suid", 0, MOUNT_ATTR_NOSUID },
	{ "nodev", MOUNT_ATTR_NODEV, 0 },   { "dev", 0, MOUNT_ATTR_NODEV },
	{ "noexec", MOUNT_ATTR_NOEXEC, 0 }, { "exec", 0, MOUNT_ATTR_NOEXEC },
	{ "defaults", 0, 0 },
};

const char *jail_type_name(enum jail_type type)
{
	for (size_t i = 0; i < N_TYPES; i++)
		if (types[i].type == type)
			return types[i].name;
	return "?";
}

static int parse_create(const char *value, struct jail_entry *entry, struct jail_error *err)
{
	if (entry->create != JAIL_CREATE_NONE)
		return jail_fail(err, NULL, 0, "x-create is given twice");
	if (value && !strcmp(value, "dir"))
		entry->create = JAIL_CREATE_DIR;
	else if (value && !strcmp(value, "file"))
		entry->create = JAIL_CREATE_FILE;
	else
		return jail_fail(err, NULL, 0, "x-create is \"dir\" or \"file\", not \"%s\"", value ? value : "");
	return 0;
}

/* Options that any type takes. 1: taken, 0: not one of these, -1: wrong value. */
static int parse_general(const char *key, const char *value, struct jail_entry *entry, struct jail_error *err)
{
	if (!strcmp(key, "x-create"))
		return parse_create(value, entry, err) ? -1 : 1;
	if (!strcmp(key, "x-jail.if")) {
		if (!value || value[0] != '/')
			return jail_fail(err, NULL, 0, "x-jail.if takes an absolute path of the node");
		if (entry->only_if)
			return jail_fail(err, NULL, 0, "x-jail.if is given twice; a line has one condition");
		entry->only_if = value;
		return 1;
	}
	if (value)
		return 0;
	if (!strcmp(key, "nofail")) {
		entry->nofail = true;
		return 1;
	}
	for (size_t i = 0; i < sizeof(option_flags) / sizeof(option_flags[0]); i++) {
		if (strcmp(key, option_flags[i].name))
			continue;
		entry->attributes = (entry->attributes | option_flags[i].set) & ~option_flags[i].unset;
		return 1;
	}
	return 0;
}

static int parse_scope(const char *key, struct jail_entry *entry, struct jail_error *err)
{
	if (entry->type != JAIL_TMPFS && entry->type != JAIL_DEV)
		return jail_fail(err, NULL, 0, "%s is for tmpfs and dev only; a %s has no content of its own", key,
				 jail_type_name(entry->type));
	entry->scope = strcmp(key, "x-jail.per-job") ? JAIL_SCOPE_STEP : JAIL_SCOPE_JOB;
	return 1;
}

/* Options of one type: parameters of its file system. Returns as parse_general. */
static int parse_specific(size_t type, const char *key, const char *value, struct jail_entry *entry,
			  struct jail_error *err)
{
	if (!value && (!strcmp(key, "x-jail.per-job") || !strcmp(key, "x-jail.per-step")))
		return parse_scope(key, entry, err);
	for (const char *const *known = types[type].parameters; *known; known++) {
		if (strcmp(key, *known))
			continue;
		if (!value || !*value)
			return jail_fail(err, NULL, 0, "%s needs a value, as in %s=...", key, key);
		if (entry->n_parameters == JAIL_MAX_PARAMETERS)
			return jail_fail(err, NULL, 0, "%s is given too often", key);
		entry->parameters[entry->n_parameters++] = (struct jail_parameter){ key, value };
		return 1;
	}
	return 0;
}

static bool has_option(const char *options, const char *name)
{
	for (const char *part = options; part; part = strchr(part, ',') ? strchr(part, ',') + 1 : NULL)
		if (strcspn(part, ",") == strlen(name) && !strncmp(part, name, strlen(name)))
			return true;
	return false;
}

/* Of two that say the opposite, mount(8) takes the last; with these the plan's author is asked instead. */
static int check_choices(const char *options, struct jail_error *err)
{
	static const char *const choices[][2] = { { "bind", "rbind" }, { "x-jail.per-job", "x-jail.per-step" } };

	for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++)
		if (has_option(options, choices[i][0]) && has_option(options, choices[i][1]))
			return jail_fail(err, NULL, 0, "%s and %s are both given; choose one", choices[i][0], choices[i][1]);
	return 0;
}

static size_t find_type(const char *name, const char *options, struct jail_error *err)
{
	if (!strcmp(name, "none")) {
		if (has_option(options, "bind") || has_option(options, "rbind"))
			return has_option(options, "rbind");
		jail_fail(err, NULL, 0, "type \"none\" needs the option bind or rbind");
		return N_TYPES;
	}
	for (size_t i = 2; i < N_TYPES; i++)
		if (!strcmp(name, types[i].name))
			return i;
	if (!strcmp(name, "bind") || !strcmp(name, "rbind"))
		jail_fail(err, NULL, 0, "a bind is written with type \"none\" and the option %s", name);
	else
		jail_fail(err, NULL, 0, "unknown type \"%s\"; known: none (bind, rbind), tmpfs, proc, sysfs, "
			  "devpts, mqueue, dev, cdi", name);
	return N_TYPES;
}

int jail_options_parse(const char *type, struct jail_entry *entry, struct jail_error *err)
{
	size_t index = check_choices(entry->options, err) ? N_TYPES : find_type(type, entry->options, err);
	char *rest = entry->options, *option;

	if (index == N_TYPES)
		return -1;
	entry->type = types[index].type;
	entry->attributes = types[index].defaults;
	/* A device file bound one by one has to stay one. */
	if (!strncmp(entry->source, "/dev/", 5) || !strcmp(entry->source, "/dev"))
		entry->attributes &= ~(uint64_t)MOUNT_ATTR_NODEV;
	while ((option = strsep(&rest, ","))) {
		char *value = strchr(option, '=');
		if (value)
			*value++ = '\0';
		if (!*option)
			return jail_fail(err, NULL, 0, "an option is empty: look for two commas in a row");
		if (index < 2 && !value && !strcmp(option, types[index].name))
			continue;
		int taken = parse_general(option, value, entry, err);
		if (!taken)
			taken = parse_specific(index, option, value, entry, err);
		if (taken < 0)
			return -1;
		if (!taken)
			return jail_fail(err, NULL, 0, "unknown option \"%s%s%s\" for type %s; docs/jail-plan.md "
					 "lists them", option, value ? "=" : "", value ? value : "", types[index].name);
	}
	if (entry->create == JAIL_CREATE_FILE && index >= 2 && entry->type != JAIL_CDI)
		return jail_fail(err, NULL, 0, "x-create=file is for binds of single files; type %s needs a directory",
				 types[index].name);
	return 0;
}
