/* SPDX-License-Identifier: Apache-2.0 */
/* Tests service/queries.c, by which slurmdbd's SQL queries take clients' texts: that these are escaped, and never
 * stand outside quotes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/testing/check.h"
#include "spank_jail/service/queries.h"

static bool is_escaped(const char *text, const char *expected)
{
	char to[256];
	size_t length = jail_queries_escape(text, NULL);

	return length == strlen(expected) && jail_queries_escape(text, to) == length && !strcmp(to, expected);
}

/* Whether a query of `format` is sound with what Slurm and this make of the client's text. */
static bool is_sound(const char *format, const char *received)
{
	char text[256], query[512];

	jail_queries_escape(received, text);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(query, sizeof(query), format, text);
#pragma GCC diagnostic pop
	return jail_queries_is_sound(query);
}

int main(void)
{
	CHECK(is_escaped("", ""));
	CHECK(is_escaped("node[1-3],1=4,2=1000,50%_", "node[1-3],1=4,2=1000,50%_"));
	/* What Slurm has done is not done again. */
	CHECK(is_escaped("it\\'s \\\\ \"x\"", "it\\'s \\\\ \\\"x\\\""));
	CHECK(is_escaped("a(b);c`d\n", "a\\(b\\)\\;c\\`d\n"));
	CHECK(is_escaped("1 Select 2", "1\\ Select\\ 2"));
	/* Cut by who sent it. */
	CHECK(is_escaped("x\\", "x\\"));

	const char *name = "select t1.x from \"%s_assoc_table\" as t1 where t1.deleted=0;";
	const char *number = "select x from t where t1.deleted=0 && (t1.id_assoc=%s);";
	const char *text = "update t set comment='%s', \"a\"='(;\"' where id=-1;";

	CHECK(is_sound(name, "lab"));
	CHECK(!is_sound(name, "lab_assoc_table\" where 1=0; drop table x; select 1 from \"lab"));
	CHECK(!is_sound(name, "lab\\'"));
	CHECK(is_sound(number, "4"));
	CHECK(!is_sound(number, "1) or (1=1"));
	CHECK(!is_sound(number, "1 union select 1"));
	CHECK(!is_sound(number, "1/**/or/**/1"));
	CHECK(!is_sound(number, "1#"));
	CHECK(!is_sound(number, "\\'a\\'"));
	/* In a literal all is as it was. */
	CHECK(is_sound(text, "it\\'s; drop table x; -- /* # (\"`"));
	CHECK(is_sound(text, ""));
	CHECK(is_sound(text, "\\\\"));
	CHECK(jail_queries_is_sound("select '\\'', '', 'a\\\\' from \"a'b\" where t - -1 > x--1"));
	CHECK(!jail_queries_is_sound("select '\\'' from x -- \\"));
	CHECK(!jail_queries_is_sound("select 1 --"));
	CHECK(jail_queries_is_sound("select 'not over"));
	return check_result("queries");
}
