#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "../../spank_jail/core/scoped.h"
#include "../text/report.h"
#include "command.h"

int command_settings(struct settings *settings, const char *script)
{
	struct jail_error err;

	return settings_load(settings, script, &err) ? report_failure(&err) : 0;
}

char *command_root(const struct settings *settings, const char *name)
{
	if (!*name || strchr(name, '/') || name[0] == '.') {
		report_error("\"%s\" is no name of a container: it is not empty, holds no \"/\" and begins with no \".\"", name);
		return NULL;
	}
	return text_format("%s/%s", settings_get(settings, "ENROOT_DATA_PATH"), name);
}
