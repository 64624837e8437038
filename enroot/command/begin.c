/* SPDX-License-Identifier: Apache-2.0 */
/* Does what every command of enroot begins with: loads the settings, parses options and the argument, checks the
 * container's name and forms the path of its root. The commands of this folder and of enroot/importing call it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "command.h"
#include "staging.h"

int command_settings(struct settings *settings, const char *script)
{
	struct jail_error err;

	return settings_load(settings, script, &err) ? report_failure(&err) : 0;
}

int command_begin(int argc, char **argv, const struct command_option *table, const char *takes, const char **word,
		  struct settings *settings)
{
	int first, status = command_options(argc, argv, table, OPTIONS_ANYWHERE, &first);

	if (status >= 0)
		return status;
	if (first + 1 != argc)
		return command_usage(argv[0], "%s", takes);
	*word = argv[first];
	return command_settings(settings, NULL) ? 1 : -1;
}

char *command_root(const struct settings *settings, const char *name)
{
	if (!*name || strchr(name, '/') || name[0] == '.') {
		report_error("\"%s\" is no name of a container: it is not empty, holds no \"/\" and begins with no \".\"", name);
		return NULL;
	}
	return text_format("%s/%s", settings_get(settings, "ENROOT_DATA_PATH"), name);
}

int command_check_name(const struct settings *settings, const char *name, bool force)
{
	scoped_free char *root = command_root(settings, name);
	struct stat st;

	if (!root)
		return 1;
	return force || lstat(root, &st) ? 0 : report_error("%s: %s", name, STAGING_TAKEN);
}
