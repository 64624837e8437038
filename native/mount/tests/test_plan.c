/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parser of mount plans: what each line means, and the error for each kind of wrong line. */
#include <stdlib.h>

#include "native/mount/plan.h"
#include "native/base/sys.h"
#include "native/testing/check.h"

static struct jail_error err;
static char formatted[1400];

static int parse(const char *text, struct jail_plan *plan)
{
	memset(&err, 0, sizeof(err));
	return jail_plan_parse(text, strlen(text), "jail.fstab", plan, &err);
}

/* Expects the text to be refused; returns the whole message. */
static const char *refused(const char *text)
{
	struct jail_plan plan;

	CHECK(parse(text, &plan) == -1);
	CHECK(plan.n_entries == 0 && !plan.entries);
	return jail_error_format(&err, formatted, sizeof(formatted));
}

static void test_a_full_plan(void)
{
	struct jail_plan plan;

	CHECK(parse("# comment\n"
		    "\n"
		    "proc  /proc  proc  hidepid=invisible\n"
		    "  /mnt/da\\040ta\t/data none rbind,ro,x-create=dir,nofail,x-jail.if=/mnt/x 0 0\n"
		    "tmpfs /tmp tmpfs size=10%,mode=1777,x-jail.per-job", &plan) == 0);
	CHECK(plan.n_entries == 3);
	CHECK(plan.entries[0].line == 3 && plan.entries[0].type == JAIL_PROC);
	CHECK(plan.entries[0].n_parameters == 1 && !strcmp(plan.entries[0].parameters[0].value, "invisible"));
	const struct jail_entry *bind = &plan.entries[1];
	CHECK(bind->line == 4 && bind->type == JAIL_RBIND && !strcmp(bind->source, "/mnt/da ta"));
	CHECK(bind->attributes == (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
	CHECK(bind->create == JAIL_CREATE_DIR && bind->nofail && !strcmp(bind->only_if, "/mnt/x"));
	CHECK(plan.entries[2].scope == JAIL_SCOPE_JOB && plan.entries[2].line == 5);
	CHECK(plan.entries[2].attributes == (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
	jail_plan_free(&plan);
	CHECK(plan.n_entries == 0 && !plan.file);
}

static void test_defaults_can_be_turned(void)
{
	struct jail_plan plan;

	CHECK(parse("/mnt/a /a none bind,dev\ntmpfs /t tmpfs suid,dev\n/dev/fuse /dev/fuse none bind,x-create=file\n",
		    &plan) == 0);
	CHECK(plan.entries[0].attributes == 0);
	CHECK(plan.entries[1].attributes == 0);
	CHECK(plan.entries[2].attributes == 0 && plan.entries[2].create == JAIL_CREATE_FILE);
	jail_plan_free(&plan);
}

static void test_an_empty_plan(void)
{
	struct jail_plan plan;

	CHECK(parse("", &plan) == 0 && plan.n_entries == 0);
	jail_plan_free(&plan);
	CHECK(parse("\n# nothing\n   \n", &plan) == 0 && plan.n_entries == 0);
	jail_plan_free(&plan);
}

static void test_many_entries(void)
{
	char text[40 * 100] = "";
	struct jail_plan plan;

	for (int i = 0; i < 100; i++)
		strcat(text, "tmpfs /t tmpfs defaults\n");
	CHECK(parse(text, &plan) == 0 && plan.n_entries == 100 && plan.entries[99].line == 100);
	jail_plan_free(&plan);
}

static void test_wrong_lines_say_where_and_why(void)
{
	CHECK_HAS(refused("\n\nx /x ext9 defaults\n"), "jail.fstab:3: /x: unknown type \"ext9\"");
	CHECK_HAS(refused("tmpfs /x tmpfs siez=3\n"), "jail.fstab:1: /x: unknown option \"siez=3\" for type tmpfs");
	CHECK_HAS(refused("tmpfs /x tmpfs\n"), "jail.fstab:1: expected \"source target type options\", found 3 fields");
	CHECK_HAS(refused("/my data /x none bind 0 0 0\n"), "at most six fields");
	CHECK_HAS(refused("tmpfs x tmpfs defaults\n"), "must be an absolute path");
	CHECK_HAS(refused("tmpfs / tmpfs defaults\n"), "cannot be /");
	CHECK_HAS(refused("tmpfs // tmpfs defaults\n"), "cannot be /");
	CHECK_HAS(refused("tmpfs /a/../b tmpfs defaults\n"), "must not contain \"..\"");
	CHECK_HAS(refused("a /b none bind\n"), "must be an absolute path of the node");
	CHECK_HAS(refused("/a /b none ro\n"), "needs the option bind or rbind");
	CHECK_HAS(refused("/a /b bind ro\n"), "written with type \"none\"");
	CHECK_HAS(refused("/a /b none bind,,ro\n"), "an option is empty");
	CHECK_HAS(refused("/a /b none bind,x-create=link\n"), "x-create is \"dir\" or \"file\", not \"link\"");
	CHECK_HAS(refused("t /b tmpfs x-create=file\n"), "needs a directory");
	CHECK_HAS(refused("/a /b none bind,x-jail.per-job\n"), "for tmpfs and dev only");
	CHECK_HAS(refused("/a /b none bind,x-jail.if=no\n"), "absolute path of the node");
	CHECK_HAS(refused("/a /b none bind,x-jail.if=/c,x-jail.if=/d\n"), "x-jail.if is given twice");
	CHECK_HAS(refused("/a /b none bind,x-create=dir,x-create=file\n"), "x-create is given twice");
	CHECK_HAS(refused("/a /b none bind,ro,rbind\n"), "bind and rbind are both given; choose one");
	CHECK_HAS(refused("t /b tmpfs x-jail.per-step,x-jail.per-job\n"), "x-jail.per-job and x-jail.per-step are both");
	CHECK_HAS(refused("t /b tmpfs size\n"), "size needs a value");
	CHECK_HAS(refused("t /b tmpfs ro=1\n"), "unknown option \"ro=1\"");
}

static void test_hostile_input(void)
{
	struct jail_plan plan;
	char *line = malloc(9001);

	memset(line, 'a', 9000);
	line[9000] = '\0';
	CHECK_HAS(refused(line), "longer than");
	free(line);
	CHECK(jail_plan_parse("tmpfs\0/x", 8, "p", &plan, &err) == -1);
	CHECK_HAS(err.message, "zero byte at offset 5");
	CHECK(!strchr(refused("t /t\\012x tmpfs si\\012ze=1\n"), '\n')); /* one line in the log, whatever it holds */
	CHECK_HAS(formatted, "/t?x: unknown option \"si?ze=1\"");
	CHECK_HAS(refused("t /t tmpfs size=1,size=1,size=1,size=1,size=1,size=1,size=1,size=1,size=1\n"), "too often");
}

int main(void)
{
	test_a_full_plan();
	test_defaults_can_be_turned();
	test_an_empty_plan();
	test_many_entries();
	test_wrong_lines_say_where_and_why();
	test_hostile_input();
	return check_result("plan");
}
