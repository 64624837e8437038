/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a job's jail options: which are allowed, and how they change the mount plan. */
#include <stdlib.h>

#include "native/base/sys.h"
#include "native/testing/check.h"
#include "spank_jail/options/options.h"

static const char plan_text[] = "proc /proc proc defaults\n"
				"tmpfs /tmp/ tmpfs size=1m\n"
				"/x /data/set none bind\n";
static const char *const allowed[] = { "bind-allow=/mnt/data", "bind-allow=/mnt/golden:ro" };

static struct jail_error err;
static struct jail_options options;
static struct jail_arguments arguments;
static struct jail_plan plan;
static char line[1400];

static int binds(const char *value)
{
	int result = jail_options_binds(value, &options, &err);

	jail_error_format(&err, line, sizeof(line));
	return result;
}

static int check(const char *value)
{
	int result = binds(value) || jail_options_check(&options, &arguments, &err);

	jail_error_format(&err, line, sizeof(line));
	return result;
}

static int apply(const char *value)
{
	CHECK(!jail_plan_parse(plan_text, sizeof(plan_text) - 1, "plan", &plan, &err));
	int result = binds(value) || jail_options_apply(&options, &arguments, "/var/spool/slurmd", &plan, &err);
	jail_error_format(&err, line, sizeof(line));
	return result;
}

static void refuses(const char *value, const char *why)
{
	CHECK(apply(value));
	CHECK_HAS(line, why);
	CHECK(jail_options_at_fault(&err));
	jail_plan_free(&plan);
}

static void test_form(void)
{
	CHECK(!binds("/a:/b") && options.n_binds == 1 && !options.binds[0].readonly);
	CHECK(!strcmp(options.binds[0].source, "/a") && !strcmp(options.binds[0].target, "/b"));
	CHECK(!binds("/a b:/c:ro,/d:/e:rw") && options.n_binds == 2);
	CHECK(options.binds[0].readonly && !options.binds[1].readonly);
	CHECK(!binds("none") && options.n_binds == 0);
	const char *const wrong[] = { "", "/a", "/a:", ":/b", "/a:/b,", "/a:/b:ro:x", "a:/b", "/a:b", "/a/../b:/c", "/a:/b/..",
				      "/a/:/b", "/a:/b//c", "/:/b", "/a:/", "/a:/./b" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(binds(wrong[i]) == -1 && options.n_binds == 0);
	CHECK(binds("/a:/b,/c:/d:wo") == -1);
	CHECK_HAS(line, "--jail-bind=/c:/d:wo: after the second colon comes \"ro\" or \"rw\", not \"wo\"");
	CHECK(!binds("/a:/0,/a:/1,/a:/2,/a:/3,/a:/4,/a:/5,/a:/6,/a:/7,/a:/8,/a:/9,/a:/10,/a:/11,/a:/12,/a:/13,/a:/14,/a:/15"));
	CHECK(binds("/a:/0,/a:/1,/a:/2,/a:/3,/a:/4,/a:/5,/a:/6,/a:/7,/a:/8,/a:/9,/a:/10,/a:/11,/a:/12,/a:/13,/a:/14,/a:/15,/a:/16"));
	CHECK_HAS(line, "more than 16 binds");
}

static void test_switches(void)
{
	bool on = false;

	CHECK(!jail_options_switch("no-jail", "", &on, &err) && on);
	CHECK(!jail_options_switch("no-jail", "no", &on, &err) && !on);
	CHECK(!jail_options_switch("no-jail", "1", &on, &err) && on);
	CHECK(!jail_options_switch("no-jail", "false", &on, &err) && !on);
	CHECK(jail_options_switch("no-jail", "maybe", &on, &err) == -1 && jail_options_at_fault(&err));
	CHECK_HAS(err.message, "not \"maybe\"");
}

static void test_rules(void)
{
	CHECK(!check("/mnt/data:/b") && !check("/mnt/data/deep/er:/b:ro") && !check("/mnt/golden:/b:ro"));
	CHECK(check("/mnt/database:/b"));
	CHECK_HAS(line, "--jail-bind=/mnt/database:/b: the source is not in what the administrator allows: /mnt/data, /mnt/golden");
	CHECK(check("/mnt:/b") && check("/etc:/b"));
	CHECK(check("/mnt/golden/x:/b"));
	CHECK_HAS(line, "\"/mnt/golden\" for reading only; add :ro");
	const struct jail_arguments nothing = { 0 };
	CHECK(!binds("/mnt/data:/b") && jail_options_check(&options, &nothing, &err));
	CHECK_HAS(err.message, "no bind-allow= in plugstack.conf");
	options.no_jail = true;
	CHECK(!binds("/mnt/data:/b") && jail_options_check(&options, &arguments, &err));
	CHECK_HAS(err.message, "no sense together with --jail-bind");
	options.no_jail = false;
}

static void test_targets(void)
{
	refuses("/mnt/data:/proc", "\"/proc\", which Slurm needs");
	refuses("/mnt/data:/dev/shm", "\"/dev\", which Slurm needs");
	refuses("/mnt/data:/etc", "\"/etc/slurm\"");
	refuses("/mnt/data:/run", "\"/run/munge\"");
	refuses("/mnt/data:/run/slurm", "\"/run/slurm\", which Slurm needs");
	refuses("/mnt/data:/var", "\"/var/spool/slurmd\"");
	refuses("/mnt/data:/tmp", "would hide \"/tmp/\", which plan:2 mounts");
	refuses("/mnt/data:/data", "would hide \"/data/set\", which plan:3 mounts");
	refuses("/mnt/data:/b/c,/mnt/data/x:/b", "--jail-bind=/mnt/data/x:/b: the target would hide \"/b/c\" of --jail-bind=/mnt/data:/b/c");
	refuses("/mnt/data:/b,/mnt/data:/b", "would hide");
}

static void test_entries(void)
{
	CHECK(!apply("/mnt/data/x:/data/set/deep,/mnt/golden:/b:ro") && plan.n_entries == 5);
	const struct jail_entry *one = &plan.entries[3], *two = &plan.entries[4];
	CHECK(one->type == JAIL_RBIND && !strcmp(one->source, "/mnt/data/x") && !strcmp(one->target, "/data/set/deep"));
	CHECK(!strcmp(one->beneath, "/mnt/data") && !strcmp(one->origin, "--jail-bind=/mnt/data/x:/data/set/deep"));
	CHECK(one->attributes == (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV) && one->user == &options.user && !one->create);
	CHECK(two->attributes == (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY));
	CHECK(!strcmp(two->origin, "--jail-bind=/mnt/golden:/b:ro") && !strcmp(two->beneath, "/mnt/golden"));
	jail_plan_free(&plan);
	CHECK(!apply("none") && plan.n_entries == 3);
	jail_plan_free(&plan);
}

static void test_tickets_stay_hidden(void)
{
	const char *const shown[] = { "/x", "/x/tickets", "/x/tickets/0" };

	arguments.tickets = "/y/x";
	CHECK(!apply("none"));
	jail_plan_free(&plan);
	for (size_t i = 0; i < 3; i++) {
		arguments.tickets = shown[i];
		CHECK(apply("none") && !jail_options_at_fault(&err));
		CHECK_HAS(line, "plan:3: /data/set: the source \"/x\" would show");
		jail_plan_free(&plan);
	}
	arguments.tickets = NULL;
}

int main(void)
{
	CHECK(!jail_arguments_parse(2, allowed, &arguments, &err));
	test_form();
	test_switches();
	test_rules();
	test_targets();
	test_entries();
	test_tickets_stay_hidden();
	jail_options_free(&options);
	jail_arguments_free(&arguments);
	return check_result("options");
}
