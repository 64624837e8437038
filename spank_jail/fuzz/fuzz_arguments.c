/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parser of the plugin's arguments in plugstack.conf, one per line of the input. */
#define _GNU_SOURCE
#include <string.h>

#include "native/seccomp/seccomp.h"
#include "native/testing/fuzz.h"
#include "spank_jail/options/arguments.h"

#define MAX_ARGUMENTS 64

static void check_arguments(const struct jail_arguments *arguments)
{
	size_t n = 0;

	MUST(arguments->root[0] == '/' && arguments->plan[0] == '/');
	MUST(!arguments->spool || arguments->spool[0] == '/');
	MUST(!(arguments->allow & ~JAIL_ALLOW_PERF_EVENT_OPEN));
	MUST(!strcmp(arguments->window[0], "/usr"));
	for (; arguments->window[n]; n++)
		MUST(n <= JAIL_MAX_WINDOW && arguments->window[n][0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *av[MAX_ARGUMENTS];
	char *text = strndup((const char *)data, size), *rest = text;
	struct jail_arguments arguments;
	struct jail_error err;
	int ac = 0;

	MUST(text);
	memset(&err, 0, sizeof(err));
	while (ac < MAX_ARGUMENTS && (av[ac] = strsep(&rest, "\n")))
		ac++;
	if (jail_arguments_parse(ac, av, &arguments, &err))
		must_explain(&err);
	else
		check_arguments(&arguments);
	jail_arguments_free(&arguments);
	free(text);
	return 0;
}
