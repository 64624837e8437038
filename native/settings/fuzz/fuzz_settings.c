/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of enroot.conf, and of the script that `enroot start --conf` names: any text is read or refused,
 * and never a crash. */
#define _GNU_SOURCE
#include <string.h>

#include "native/testing/fuzz.h"
#include "native/settings/settings.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size);
	struct settings settings = { 0 };
	struct jail_error err = { 0 };

	MUST(text);
	if (settings_read(&settings, text, "fuzz", &err))
		must_explain(&err);
	check_settings(&settings);
	if (settings_read_script(&settings, text, "fuzz", &err))
		must_explain(&err);
	check_settings(&settings);
	settings_free(&settings);
	free(text);
	return 0;
}
