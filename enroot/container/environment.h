/* Files of lines KEY=VALUE. */
#ifndef ENROOT_ENVIRONMENT_H
#define ENROOT_ENVIRONMENT_H

#include "../settings/expand.h"
#include "../text/variables.h"

/* Sets in `environment` what the lines of `text` say; values are expanded by `variables` unless that is NULL. `name`
 * stands for the file in errors. Returns 0 or -1. */
int environment_read(struct variables *environment, const char *text, const char *name,
		     const struct expand_request *variables, struct jail_error *err);

#endif
