/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the plugin's arguments in plugstack.conf. options.c and spank_jail/slurm call it. */
#define _GNU_SOURCE
#include "arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/argument.h"
#include "native/jail/pid_namespace.h"
#include "native/seccomp/seccomp.h"
#include "native/mount/user_bind.h"

static int set_level(enum jail_level *level, const char *value, struct jail_error *err)
{
	if (!jail_level_parse(value, level))
		return 0;
	return jail_fail(err, NULL, 0, "unknown level \"%s\"; known: filesystem, capabilities, pid", value);
}

static int set_path(const char **path, const char *key, const char *value, struct jail_error *err)
{
	if (value[0] != '/')
		return jail_fail(err, NULL, 0, "%s= takes an absolute path, not \"%s\"", key, value);
	*path = value;
	return 0;
}

static int add_window(struct jail_arguments *arguments, const char *value, struct jail_error *err)
{
	size_t used = 0;

	while (arguments->window[used])
		used++;
	if (used > JAIL_MAX_WINDOW)
		return jail_fail(err, NULL, 0, "window= is given more than %d times", JAIL_MAX_WINDOW);
	return set_path(&arguments->window[used], "window", value, err);
}

static int add_bind_allow(struct jail_arguments *arguments, const char *value, struct jail_error *err)
{
	struct jail_bind_allow *rule = &arguments->bind_allow[arguments->n_bind_allow];
	size_t length = strlen(value);

	if (arguments->n_bind_allow == JAIL_MAX_BIND_ALLOW)
		return jail_fail(err, NULL, 0, "bind-allow= is given more than %d times", JAIL_MAX_BIND_ALLOW);
	*rule = (struct jail_bind_allow){ .readonly = length > 3 && !strcmp(value + length - 3, ":ro") };
	rule->path = strndup(value, rule->readonly ? length - 3 : length);
	if (!rule->path)
		return jail_fail(err, "strndup", ENOMEM, "not enough memory for the arguments");
	/* Counted before it is checked: then it is freed with the others. */
	arguments->n_bind_allow++;
	if (!jail_path_plain(rule->path))
		return jail_fail(err, NULL, 0, "bind-allow= takes an absolute path other than /, without \".\", \"..\" "
				 "and a slash at the end, and perhaps \":ro\"; not \"%s\"", value);
	return 0;
}

static int add_uids(struct jail_arguments *arguments, const char *value, struct jail_error *err)
{
	for (const char *rest = value;; rest++) {
		char *end;
		errno = 0;
		unsigned long uid = strtoul(rest, &end, 10);
		if (rest[0] < '0' || rest[0] > '9' || (*end && *end != ',') || errno || uid >= (uid_t)-1)
			return jail_fail(err, NULL, 0, "no-jail-uids= takes numbers with commas between them, not \"%s\"",
					 value);
		if (arguments->n_no_jail_uids == JAIL_MAX_NO_JAIL_UIDS)
			return jail_fail(err, NULL, 0, "no-jail-uids= lists more than %d", JAIL_MAX_NO_JAIL_UIDS);
		arguments->no_jail_uids[arguments->n_no_jail_uids++] = (uid_t)uid;
		if (!*end)
			return 0;
		rest = end;
	}
}

bool jail_arguments_is_user(const struct jail_arguments *arguments, uid_t uid)
{
	return uid == 0 || jail_ids_have(&arguments->users, uid);
}

/* A bind of the outer would show the inner, whatever the inner's rule says. */
static int check_nested(const struct jail_arguments *arguments, struct jail_error *err)
{
	for (size_t i = 0; i < arguments->n_bind_allow; i++)
		for (size_t j = 0; j < arguments->n_bind_allow; j++)
			if (i != j && jail_path_within(arguments->bind_allow[i].path, arguments->bind_allow[j].path))
				return jail_fail(err, NULL, 0, "bind-allow=%s lies in bind-allow=%s, which allows it already",
						 arguments->bind_allow[i].path, arguments->bind_allow[j].path);
	return 0;
}

/* What must hold between them: no user's bind, and no jail, may show the tree's outside or the tickets. */
static int check_together(const struct jail_arguments *arguments, struct jail_error *err)
{
	const char *const secret[] = { arguments->root, arguments->tickets, NULL };

	if (arguments->n_no_jail_uids && !arguments->tickets)
		return jail_fail(err, NULL, 0, "no-jail-uids= needs no-jail-tickets=DIR, a directory on all nodes that no "
				 "jail shows; docs/jail-plan.md");
	if (arguments->tickets && jail_path_within(arguments->tickets, arguments->root))
		return jail_fail(err, NULL, 0, "no-jail-tickets=%s lies inside the jail, root=%s", arguments->tickets,
				 arguments->root);
	for (size_t i = 0; i < arguments->n_bind_allow; i++)
		for (const char *const *path = secret; *path; path++)
			if (jail_path_within(*path, arguments->bind_allow[i].path) ||
			    jail_path_within(arguments->bind_allow[i].path, *path))
				return jail_fail(err, NULL, 0, "bind-allow=%s would give users \"%s\"; name another directory",
						 arguments->bind_allow[i].path, *path);
	return check_nested(arguments, err);
}

static int parse_one(const char *argument, struct jail_arguments *arguments, struct jail_error *err)
{
	const char *value;

	if ((value = jail_value_of(argument, "root")))
		return set_path(&arguments->root, "root", value, err);
	if ((value = jail_value_of(argument, "plan")))
		return set_path(&arguments->plan, "plan", value, err);
	if ((value = jail_value_of(argument, "spool")))
		return set_path(&arguments->spool, "spool", value, err);
	if ((value = jail_value_of(argument, "init")))
		return set_path(&arguments->init, "init", value, err);
	if ((value = jail_value_of(argument, "window")))
		return add_window(arguments, value, err);
	if ((value = jail_value_of(argument, "level")))
		return set_level(&arguments->level, value, err);
	if ((value = jail_value_of(argument, "bind-allow")))
		return add_bind_allow(arguments, value, err);
	if ((value = jail_value_of(argument, "no-jail-uids")))
		return add_uids(arguments, value, err);
	if ((value = jail_value_of(argument, "no-jail-tickets")))
		return set_path(&arguments->tickets, "no-jail-tickets", value, err);
	if ((value = jail_value_of(argument, "bcast")))
		return set_path(&arguments->bcast, "bcast", value, err);
	if ((value = jail_value_of(argument, "users")))
		return jail_ids_parse(&arguments->users, "users", value, err);
	if ((value = jail_value_of(argument, "allow")))
		return jail_seccomp_allow(value, &arguments->allow, err);
	int selected = jail_selection_parse(&arguments->only, argument, err);
	if (selected <= 0)
		return selected;
	return jail_fail(err, NULL, 0, "unknown argument \"%s\" in plugstack.conf; known: root=, plan=, level=, "
			 "spool=, window=, init=, users=, bcast=, bind-allow=, no-jail-uids=, no-jail-tickets=, allow=, jail-partitions=, "
			 "jail-users=, jail-groups=, jail-by-request=", argument);
}

void jail_arguments_free(struct jail_arguments *arguments)
{
	while (arguments->n_bind_allow)
		free(arguments->bind_allow[--arguments->n_bind_allow].path);
}

/* The later would win, and an administrator who reads the first line, level=pid, believes that one. */
static int check_once(int ac, const char *const av[], struct jail_error *err)
{
	static const char *const repeatable[] = { "window", "bind-allow", NULL };

	for (int i = 0; i < ac; i++) {
		size_t length = strcspn(av[i], "=");
		bool may_repeat = false;
		for (const char *const *key = repeatable; *key; key++)
			may_repeat |= strlen(*key) == length && !strncmp(av[i], *key, length);
		for (int j = 0; j < i && !may_repeat; j++)
			if (!strncmp(av[i], av[j], length + 1))
				return jail_fail(err, NULL, 0, "\"%s\" and \"%s\" in plugstack.conf: give %.*s= once", av[j], av[i],
						 (int)length, av[i]);
	}
	return 0;
}

int jail_arguments_parse(int ac, const char *const av[], struct jail_arguments *arguments, struct jail_error *err)
{
	*arguments = (struct jail_arguments){
		.root = "/mnt/jail/root",
		.plan = "/etc/cellblock/jail.fstab",
		.level = JAIL_LEVEL_CAPABILITIES,
		.init = JAIL_PID_INIT,
		.bcast = JAIL_BCAST,
		.window = { "/usr" },
	};
	int result = jail_ids_parse(&arguments->users, "users", JAIL_USERS, err);
	for (int i = 0; i < ac && !result; i++)
		result = parse_one(av[i], arguments, err);
	if (!result)
		result = check_once(ac, av, err);
	if (!result)
		result = check_together(arguments, err);
	if (result)
		jail_arguments_free(arguments);
	return result;
}
