/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parsing of the plugin's arguments in plugstack.conf. */
#include "native/seccomp/seccomp.h"
#include "native/testing/check.h"
#include "spank_jail/options/arguments.h"

static struct jail_error err;
static struct jail_arguments arguments;

static int parse_one(const char *argument)
{
	const char *av[] = { argument };

	jail_arguments_free(&arguments);
	return jail_arguments_parse(1, av, &arguments, &err);
}

static int parse_two(const char *one, const char *two)
{
	const char *av[] = { one, two };

	jail_arguments_free(&arguments);
	return jail_arguments_parse(2, av, &arguments, &err);
}

static void test_binds(void)
{
	CHECK(!parse_two("bind-allow=/mnt/data", "bind-allow=/mnt/golden:ro") && arguments.n_bind_allow == 2);
	CHECK(!strcmp(arguments.bind_allow[0].path, "/mnt/data") && !arguments.bind_allow[0].readonly);
	CHECK(!strcmp(arguments.bind_allow[1].path, "/mnt/golden") && arguments.bind_allow[1].readonly);
	jail_arguments_free(&arguments);
	CHECK(parse_one("bind-allow=data") == -1 && parse_one("bind-allow=/a/../b") == -1 && parse_one("bind-allow=/") == -1);
	CHECK_HAS(err.message, "absolute path other than /");
	CHECK(parse_two("bind-allow=/srv", "bind-allow=/srv/a:ro") == -1);
	CHECK_HAS(err.message, "bind-allow=/srv/a lies in bind-allow=/srv");
	CHECK(parse_one("bind-allow=/mnt/jail/root/home") == -1 && parse_one("bind-allow=/mnt") == -1);
	CHECK_HAS(err.message, "would give users \"/mnt/jail/root\"");
	CHECK(parse_two("bind-allow=/srv", "no-jail-tickets=/srv/tickets") == -1);
	CHECK_HAS(err.message, "would give users \"/srv/tickets\"");
}

static void test_repeated(void)
{
	const char *const once[] = { "root=/a", "plan=/a", "level=pid", "init=/a", "users=1", "bcast=/a", "spool=/a",
				     "no-jail-uids=1", "no-jail-tickets=/t", "allow=perf_event_open" };
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++) {
		CHECK(parse_two(once[i], once[i]) == -1);
		CHECK_HAS(err.message, "in plugstack.conf: give ");
		CHECK_HAS(err.message, "= once");
	}
	CHECK(parse_two("level=pid", "level=filesystem") == -1);
	CHECK_HAS(err.message, "\"level=pid\" and \"level=filesystem\" in plugstack.conf: give level= once");
	CHECK(!parse_two("window=/opt/a", "window=/opt/b"));
}

static void test_no_jail(void)
{
	CHECK(!parse_two("no-jail-uids=0,1000", "no-jail-tickets=/mnt/jail/no-jail") && arguments.n_no_jail_uids == 2);
	CHECK(arguments.no_jail_uids[0] == 0 && arguments.no_jail_uids[1] == 1000);
	CHECK(parse_one("no-jail-uids=0") == -1);
	CHECK_HAS(err.message, "needs no-jail-tickets=");
	CHECK(parse_two("no-jail-uids=0", "no-jail-tickets=/mnt/jail/root/tmp") == -1);
	CHECK_HAS(err.message, "inside the jail");
	const char *const wrong[] = { "no-jail-uids=", "no-jail-uids=root", "no-jail-uids=1,", "no-jail-uids=-1",
				      "no-jail-uids=4294967295", "no-jail-uids=1 2" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(parse_two("no-jail-tickets=/t", wrong[i]) == -1);
	CHECK_HAS(err.message, "numbers with commas");
}

static void test_users(void)
{
	CHECK(!parse_one("level=pid") && jail_arguments_is_user(&arguments, 0) && jail_arguments_is_user(&arguments, 1000));
	CHECK(jail_arguments_is_user(&arguments, 60000) && jail_arguments_is_user(&arguments, 65536));
	/* daemon, munge and slurm of the images, nobody, and what is none. */
	const uid_t system[] = { 1, 999, 60001, 64030, 65520, 65534, 65535, (uid_t)-1 };
	for (size_t i = 0; i < sizeof(system) / sizeof(system[0]); i++)
		CHECK(!jail_arguments_is_user(&arguments, system[i]));
	CHECK(!parse_one("users=500,7000-7002") && jail_arguments_is_user(&arguments, 500));
	CHECK(jail_arguments_is_user(&arguments, 7002) && !jail_arguments_is_user(&arguments, 7003));
	const char *const wrong[] = { "users=", "users=a", "users=1-", "users=2-1", "users=1,", "users=1-4294967295" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(parse_one(wrong[i]) == -1);
	CHECK_HAS(err.message, "numbers and ranges");
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
	CHECK(parse_one("level=pid") == 0 && !arguments.allow);
	CHECK(parse_one("allow=perf_event_open") == 0 && arguments.allow == JAIL_ALLOW_PERF_EVENT_OPEN);
	CHECK(parse_one("allow=") == -1 && parse_one("allow=mount") == -1);
	CHECK_HAS(err.message, "\"mount\" is no system call that can be allowed");
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
	test_binds();
	test_repeated();
	test_no_jail();
	jail_arguments_free(&arguments);
	test_users();
	return check_result("arguments");
}
