/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration file, and the same text as the script of --conf and as a file of variables. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "enroot/container/environment.h"
#include "native/settings/settings.h"
#include "native/base/report.h"

static void check_settings(const struct settings *settings)
{
	for (size_t i = 0; i < settings->variables.list.n; i++) {
		char *pair = settings->variables.list.items[i], *equals = strchr(pair, '=');
		MUST(equals);
		char *key = text_copy(pair, (size_t)(equals - pair));
		MUST(settings_is_key(key) && variables_is_name(key, strlen(key)));
		MUST(!strcmp(settings_get(settings, key), equals + 1));
		free(key);
	}
}

static const char *lookup(void *environment, const char *name)
{
	return variables_get(environment, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct settings settings = { 0 };
	struct variables environment = { 0 };
	struct jail_error err = { 0 };

	MUST(text);
	if (settings_read(&settings, text, "fuzz", &err))
		must_explain(&err);
	check_settings(&settings);
	if (settings_read_script(&settings, text, "fuzz", &err))
		must_explain(&err);
	check_settings(&settings);
	if (environment_read(&environment, text, "fuzz", NULL, &err))
		must_explain(&err);
	const struct expand_request variables = { EXPAND_BRACES, lookup, &environment };
	if (environment_read(&environment, text, "fuzz", &variables, &err))
		must_explain(&err);
	report_level(REPORT_ERRORS);
	environment_read_image(&environment, text, "fuzz", ENVIRONMENT_RAW);
	environment_read_image(&environment, text, "fuzz", ENVIRONMENT_QUOTED);
	for (size_t i = 0; i < environment.list.n; i++)
		MUST(strchr(environment.list.items[i], '=') > environment.list.items[i]);
	variables_free(&environment);
	settings_free(&settings);
	free(text);
	return 0;
}
