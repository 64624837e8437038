/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the expansion of variables and commands in values of settings and fstab lines. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "native/settings/expand.h"

static const char *lookup(void *context, const char *name)
{
	(void)context;
	return !strcmp(name, "A") ? "one" : !strcmp(name, "EMPTY") ? "" : NULL;
}

static void check_value(enum expand_mode mode, const char *text, const char *expected)
{
	const struct expand_request request = { mode, lookup, NULL };
	struct jail_error err;
	scoped_free char *value = expand(text, &request, &err);

	CHECK(value != NULL);
	CHECK(value && !strcmp(value, expected));
}

static void check_refused(enum expand_mode mode, const char *text, const char *message)
{
	const struct expand_request request = { mode, lookup, NULL };
	struct jail_error err;
	scoped_free char *value = expand(text, &request, &err);

	CHECK(value == NULL);
	if (!value)
		CHECK_HAS(err.message, message);
}

int main(void)
{
	char uid[32], deep[400] = "";

	snprintf(uid, sizeof(uid), "%u-%u", (unsigned)geteuid(), (unsigned)geteuid());
	check_value(EXPAND_SHELL, "$A${A}x$A-", "oneonexone-");
	check_value(EXPAND_SHELL, "${NO:-${A}}|${EMPTY:-x}|${EMPTY-x}|${A:+y}|${NO+z}", "one|x||y|");
	check_value(EXPAND_SHELL, "'$A' \"$A\" \\$A", "$A one $A");
	check_value(EXPAND_SHELL, "$(id -u)-$UID", uid);
	check_value(EXPAND_SHELL, "$", "$");
	check_value(EXPAND_BRACES, "$A '${A}' \\ $(id -u)", "$A 'one' \\ $(id -u)");
	check_refused(EXPAND_SHELL, "$(rm -r /)", "$(rm -r /) is not run");
	check_refused(EXPAND_SHELL, "$(id -u", "without \")\"");
	check_refused(EXPAND_SHELL, "\"`id`\"", "not run");
	check_refused(EXPAND_BRACES, "${}", "names no variable");
	check_refused(EXPAND_BRACES, "${A/x/y}", "only ${NAME}");
	check_refused(EXPAND_BRACES, "${A", "without \"}\"");
	for (int i = 0; i < 40; i++)
		strcat(deep, "${N:-");
	for (int i = 0; i < 40; i++)
		strcat(deep, "}");
	check_refused(EXPAND_BRACES, deep, "nested deeper");
	return check_result("expand");
}
