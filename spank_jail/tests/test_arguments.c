/* The plugin's arguments in plugstack.conf. */
#include "../slurm/arguments.h"
#include "check.h"

static struct jail_error err;
static struct jail_arguments arguments;

static int parse_one(const char *argument)
{
	const char *av[] = { argument };

	return jail_arguments_parse(1, av, &arguments, &err);
}

int main(void)
{
	const char *all[] = { "root=/j", "plan=/p", "level=filesystem", "spool=/s/%n", "window=/opt/slurm" };

	CHECK(jail_arguments_parse(0, NULL, &arguments, &err) == 0);
	CHECK(!strcmp(arguments.root, "/mnt/jail/root") && !strcmp(arguments.plan, "/etc/cellblock/jail.fstab"));
	CHECK(!arguments.spool && !strcmp(arguments.window[0], "/usr") && !arguments.window[1]);
	CHECK(jail_arguments_parse(5, all, &arguments, &err) == 0);
	CHECK(!strcmp(arguments.root, "/j") && !strcmp(arguments.window[1], "/opt/slurm") && !arguments.window[2]);
	CHECK(parse_one("level=pid") == 0 && arguments.level == JAIL_LEVEL_PID);
	CHECK(!strcmp(arguments.init, "/usr/libexec/cellblock/jail-init"));
	CHECK(parse_one("init=/i") == 0 && !strcmp(arguments.init, "/i"));
	CHECK(parse_one("init=i") == -1);
	CHECK(parse_one("level=max") == -1);
	CHECK_HAS(err.message, "unknown level \"max\"");
	CHECK(parse_one("root=jail") == -1);
	CHECK_HAS(err.message, "absolute path");
	CHECK(parse_one("rooot=/x") == -1);
	CHECK_HAS(err.message, "unknown argument \"rooot=/x\"");
	const char *many[] = { "window=/1", "window=/2", "window=/3", "window=/4", "window=/5", "window=/6", "window=/7",
			 "window=/8", "window=/9" };
	CHECK(jail_arguments_parse(8, many, &arguments, &err) == 0 && !arguments.window[9]);
	CHECK(jail_arguments_parse(9, many, &arguments, &err) == -1);
	return check_result("arguments");
}
