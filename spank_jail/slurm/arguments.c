#include "arguments.h"

#include <stddef.h>
#include <string.h>

#include "../core/pid.h"

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

/* The value when `argument` is "key=value", else NULL. */
static const char *value_of(const char *argument, const char *key)
{
	size_t length = strlen(key);

	return !strncmp(argument, key, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

static int parse_one(const char *argument, struct jail_arguments *arguments, struct jail_error *err)
{
	const char *value;

	if ((value = value_of(argument, "root")))
		return set_path(&arguments->root, "root", value, err);
	if ((value = value_of(argument, "plan")))
		return set_path(&arguments->plan, "plan", value, err);
	if ((value = value_of(argument, "spool")))
		return set_path(&arguments->spool, "spool", value, err);
	if ((value = value_of(argument, "init")))
		return set_path(&arguments->init, "init", value, err);
	if ((value = value_of(argument, "window")))
		return add_window(arguments, value, err);
	if ((value = value_of(argument, "level")))
		return set_level(&arguments->level, value, err);
	return jail_fail(err, NULL, 0, "unknown argument \"%s\" in plugstack.conf; known: root=, plan=, level=, "
			 "spool=, window=, init=", argument);
}

int jail_arguments_parse(int ac, const char *const av[], struct jail_arguments *arguments, struct jail_error *err)
{
	*arguments = (struct jail_arguments){
		.root = "/mnt/jail/root",
		.plan = "/etc/cellblock/jail.fstab",
		.init = JAIL_PID_INIT,
		.window = { "/usr" },
	};
	for (int i = 0; i < ac; i++)
		if (parse_one(av[i], arguments, err))
			return -1;
	return 0;
}
