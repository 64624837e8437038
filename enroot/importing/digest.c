/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot digest [-a ARCH] URI`: prints the digest of an image in a registry. main.c calls it. */
#define _GNU_SOURCE
#include <stdio.h>

#include "enroot/command/command.h"
#include "native/registry/registry.h"
#include "native/base/report.h"
#include "commands.h"

static int print_digest(const char *uri, const char *architecture, const struct settings *settings)
{
	struct registry_uri parsed;
	struct registry_error refused;
	char digest[72];
	struct registry *registry = registry_uri_parse(&parsed, uri, &refused)
					    ? NULL : registry_open(settings, &parsed, architecture, NULL, &refused);
	int result = registry ? registry_digest(registry, digest, &refused) : -1;

	registry_close(registry);
	if (result)
		return registry_report(&refused);
	puts(digest);
	return fflush(stdout) ? report_error("cannot write to standard output") : 0;
}

int importing_digest(int argc, char **argv)
{
	const char *architecture = NULL, *uri;
	const struct command_option options[] = { { .name = "arch", .letter = 'a', .value = &architecture }, { .name = NULL } };
	struct settings settings;
	int status = command_begin(argc, argv, options, "it takes one URI", &uri, &settings);

	return status >= 0 ? status : print_digest(uri, architecture, &settings);
}
