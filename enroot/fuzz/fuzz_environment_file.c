/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of files with variables, of a user and of an image: any text is read or refused,
 * and never a crash. */
#define _GNU_SOURCE
#include <string.h>

#include "enroot/container/environment_file.h"
#include "native/base/report.h"
#include "native/base/scoped.h"
#include "native/testing/fuzz.h"

static const char *lookup(void *environment, const char *name)
{
	return variables_get(environment, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	scoped_free char *text = strndup((const char *)data, size);
	scoped_variables environment = { 0 };
	const struct expand_request variables = { EXPAND_BRACES, lookup, &environment };
	struct jail_error err = { 0 };

	MUST(text);
	if (environment_read(&environment, text, "fuzz", NULL, &err))
		must_explain(&err);
	if (environment_read(&environment, text, "fuzz", &variables, &err))
		must_explain(&err);
	report_level(REPORT_ERRORS);
	environment_read_image(&environment, text, "fuzz", ENVIRONMENT_RAW);
	environment_read_image(&environment, text, "fuzz", ENVIRONMENT_QUOTED);
	for (size_t i = 0; i < environment.list.n; i++)
		MUST(strchr(environment.list.items[i], '=') > environment.list.items[i]);
	return 0;
}
