/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a job's jail options against what the administrator allows, and changes the job's mount plan accordingly.
 * option_input.c and spank_jail/slurm call it. */
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/mount/user_bind.h"

/* What slurmstepd itself relies on while it visits the jail, whatever the plan says of it. */
static const char *const needed[] = { "/proc", "/sys", "/dev", "/run/munge", "/run/slurm", "/etc/slurm", NULL };

bool jail_options_at_fault(const struct jail_error *err)
{
	return !strncmp(err->file, "--", 2);
}

/* "users", of which people are in Debian, with USERGROUPS_ENAB=no, and on many sites. */
#define GROUP_USERS 100

int jail_options_check_user(const struct jail_user *user, const struct jail_arguments *arguments, struct jail_error *err)
{
	bool group = user->gid == GROUP_USERS || jail_arguments_is_user(arguments, user->gid);

	if (!jail_arguments_is_user(arguments, user->uid)) {
		jail_fail(err, NULL, 0, "uid %u is the system's, and runs no jobs; become a user: su - USER", (unsigned)user->uid);
		return jail_error_at(err, "--uid", 0, NULL);
	}
	if (!user->uid || (user->gid && group))
		return 0;
	jail_fail(err, NULL, 0, "group %u is the system's, and no user's primary one; use newgrp, or usermod --gid",
		  (unsigned)user->gid);
	return jail_error_at(err, "--gid", 0, NULL);
}

int jail_options_switch(const char *name, const char *value, bool *on, struct jail_error *err)
{
	static const char *const words[][4] = { { "no", "0", "false", NULL }, { "", "yes", "1", "true" } };

	for (size_t i = 0; i < 8; i++) {
		if (!words[i / 4][i % 4] || strcmp(value, words[i / 4][i % 4]))
			continue;
		*on = i / 4;
		return 0;
	}
	char origin[64];
	snprintf(origin, sizeof(origin), "--%.40s", name);
	jail_fail(err, NULL, 0, "it is \"yes\" or \"no\", not \"%s\"", value);
	return jail_error_at(err, origin, 0, NULL);
}

static void drop_binds(struct jail_options *options)
{
	for (size_t i = 0; i < options->n_binds; i++) {
		free(options->binds[i].source);
		free(options->binds[i].target);
	}
	options->n_binds = 0;
}

void jail_options_free(struct jail_options *options)
{
	drop_binds(options);
}

/* `text`: one bind, writable. */
static int parse_bind(char *text, struct jail_bind *bind, struct jail_error *err)
{
	char *source = strsep(&text, ":"), *target = strsep(&text, ":"), *mode = strsep(&text, ":");

	if (!target || text || !*source || !*target)
		return jail_fail(err, NULL, 0, "expected SRC:DST or SRC:DST:ro, and commas between several");
	if (mode && strcmp(mode, "ro") && strcmp(mode, "rw"))
		return jail_fail(err, NULL, 0, "after the second colon comes \"ro\" or \"rw\", not \"%s\"", mode);
	if (!jail_path_plain(source) || !jail_path_plain(target))
		return jail_fail(err, NULL, 0, "\"%s\" must be an absolute path other than /, without \".\", \"..\" and a "
				 "slash too many", jail_path_plain(source) ? target : source);
	bind->source = strdup(source);
	bind->target = strdup(target);
	bind->readonly = mode && !strcmp(mode, "ro");
	return bind->source && bind->target ? 0 : jail_fail(err, "strdup", ENOMEM, "not enough memory for the options");
}

/* "--jail-bind=SRC:DST", where an error happened. */
static int at_bind(struct jail_error *err, const char *text)
{
	char origin[300];

	snprintf(origin, sizeof(origin), "--jail-bind=%s", text);
	return jail_error_at(err, origin, 0, NULL);
}

int jail_options_binds(const char *value, struct jail_options *options, struct jail_error *err)
{
	scoped_free char *copy = strdup(value);
	char *rest = copy, *text;

	drop_binds(options);
	if (!copy)
		return jail_fail(err, "strdup", ENOMEM, "not enough memory for the options");
	if (!strcmp(value, "none"))
		return 0;
	while ((text = strsep(&rest, ","))) {
		struct jail_bind bind = { NULL, NULL, false };
		scoped_free char *quoted = strdup(text);
		int failed = options->n_binds == JAIL_MAX_BINDS
			? jail_fail(err, NULL, 0, "more than %d binds", JAIL_MAX_BINDS)
			: parse_bind(text, &bind, err);
		if (failed) {
			free(bind.source);
			free(bind.target);
			drop_binds(options);
			return at_bind(err, quoted ? quoted : "");
		}
		options->binds[options->n_binds++] = bind;
	}
	return 0;
}

/* The rule for a source, or NULL. None lies in another. */
static const struct jail_bind_allow *find_rule(const char *source, const struct jail_arguments *arguments)
{
	for (size_t i = 0; i < arguments->n_bind_allow; i++)
		if (jail_path_within(source, arguments->bind_allow[i].path))
			return &arguments->bind_allow[i];
	return NULL;
}

static int refuse_source(const struct jail_arguments *arguments, struct jail_error *err)
{
	char list[300] = "";
	size_t used = 0;

	for (size_t i = 0; i < arguments->n_bind_allow && used < sizeof(list); i++)
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
					 arguments->bind_allow[i].path);
	if (!*list)
		return jail_fail(err, NULL, 0, "the administrator allows no binds: there is no bind-allow= in plugstack.conf");
	return jail_fail(err, NULL, 0, "the source is not in what the administrator allows: %s", list);
}

static int check_source(const struct jail_bind *bind, const struct jail_arguments *arguments, struct jail_error *err)
{
	const struct jail_bind_allow *rule = find_rule(bind->source, arguments);

	if (!rule)
		return refuse_source(arguments, err);
	if (rule->readonly && !bind->readonly)
		return jail_fail(err, NULL, 0, "the administrator allows \"%s\" for reading only; add :ro", rule->path);
	return 0;
}

static int check_needed(const char *target, const char *path, struct jail_error *err)
{
	if (!jail_path_within(target, path) && !jail_path_within(path, target))
		return 0;
	return jail_fail(err, NULL, 0, "the target would hide or change \"%s\", which Slurm needs as it is", path);
}

static int check_bind(const struct jail_bind *bind, const struct jail_arguments *arguments, struct jail_error *err)
{
	if (check_source(bind, arguments, err))
		return -1;
	for (const char *const *path = needed; *path; path++)
		if (check_needed(bind->target, *path, err))
			return -1;
	return 0;
}

/* Adds to an error which bind it is about. */
static int blame(const struct jail_bind *bind, struct jail_error *err)
{
	char text[256];

	snprintf(text, sizeof(text), "%s:%s%s", bind->source, bind->target, bind->readonly ? ":ro" : "");
	return at_bind(err, text);
}

int jail_options_check(const struct jail_options *options, const struct jail_arguments *arguments,
		       struct jail_error *err)
{
	if (options->no_jail && (options->n_binds || options->readonly)) {
		jail_fail(err, NULL, 0, "it makes no sense together with %s", options->n_binds
			  ? "--jail-bind; take one away, or add --jail-bind=none where it comes from the job"
			  : "--jail-readonly; take one away, or add --jail-readonly=no where it comes from the job");
		return jail_error_at(err, "--no-jail", 0, NULL);
	}
	for (size_t i = 0; i < options->n_binds; i++)
		if (check_bind(&options->binds[i], arguments, err))
			return blame(&options->binds[i], err);
	return 0;
}

/* A target over one of the plan, or over that of an earlier bind, would take it away. */
static int check_plan(const char *target, const struct jail_plan *plan, struct jail_error *err)
{
	for (size_t i = 0; i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		/* The plan may write "/tmp/", or "//tmp". */
		const char *other = entry->target + strspn(entry->target, "/") - 1;
		size_t length = strlen(target);
		if (entry->type == JAIL_CDI || strncmp(other, target, length) || (other[length] && other[length] != '/'))
			continue;
		if (entry->origin)
			return jail_fail(err, NULL, 0, "the target would hide \"%s\" of %s", entry->target, entry->origin);
		return jail_fail(err, NULL, 0, "the target would hide \"%s\", which %s:%d mounts", entry->target, plan->file,
				 entry->line);
	}
	return 0;
}

/* What a plan shows, root inside can write: a ticket there would be worth nothing. */
static int check_tickets(const char *tickets, const struct jail_plan *plan, struct jail_error *err)
{
	for (size_t i = 0; tickets && i < plan->n_entries; i++) {
		const struct jail_entry *entry = &plan->entries[i];
		bool bind = entry->type == JAIL_BIND || entry->type == JAIL_RBIND;
		if (!bind || (!jail_path_within(tickets, entry->source) && !jail_path_within(entry->source, tickets)))
			continue;
		jail_fail(err, NULL, 0, "the source \"%s\" would show the jail no-jail-tickets=%s; move the tickets elsewhere",
			  entry->source, tickets);
		return jail_error_at(err, plan->file, entry->line, entry->target);
	}
	return 0;
}

/* The two strings that an entry of a user has besides those of the plan, in its storage. */
static int set_provenance(struct jail_entry *entry, const struct jail_bind *bind, const char *beneath)
{
	int length = asprintf(&entry->options, "--jail-bind=%s:%s%s%c%s", bind->source, bind->target,
			      bind->readonly ? ":ro" : "", '\0', beneath);

	if (length < 0) {
		entry->options = NULL;
		return -1;
	}
	entry->origin = entry->options;
	entry->beneath = entry->options + strlen(entry->options) + 1;
	return 0;
}

static int append(const struct jail_options *options, const struct jail_bind *bind,
		  const struct jail_arguments *arguments, struct jail_plan *plan, struct jail_error *err)
{
	struct jail_entry entry = {
		.source = strdup(bind->source),
		.target = strdup(bind->target),
		.type = JAIL_RBIND,
		.attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (bind->readonly ? MOUNT_ATTR_RDONLY : 0),
		.user = &options->user,
	};
	int failed = !entry.source || !entry.target ||
		     set_provenance(&entry, bind, find_rule(bind->source, arguments)->path)
		? jail_fail(err, "malloc", ENOMEM, "not enough memory for the options")
		: jail_plan_append(plan, &entry, err);

	if (failed) {
		free(entry.source);
		free(entry.target);
		free(entry.options);
	}
	return failed;
}

int jail_options_apply(const struct jail_options *options, const struct jail_arguments *arguments, const char *spool,
		       struct jail_plan *plan, struct jail_error *err)
{
	if (check_tickets(arguments->tickets, plan, err) || jail_options_check(options, arguments, err))
		return -1;
	for (size_t i = 0; i < options->n_binds; i++) {
		const struct jail_bind *bind = &options->binds[i];
		if (check_needed(bind->target, spool, err) || check_plan(bind->target, plan, err) ||
		    append(options, bind, arguments, plan, err))
			return blame(bind, err);
	}
	return 0;
}
