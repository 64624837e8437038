/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files with lines KEY=VALUE into an environment, and expands their values. */
#ifndef ENROOT_ENVIRONMENT_FILE_H
#define ENROOT_ENVIRONMENT_FILE_H

#include "native/settings/expand.h"
#include "native/base/variables.h"

/* Sets in `environment` what the lines of `text` say; values are expanded by `variables` unless that is NULL. `name`
 * stands for the file in errors. Returns 0 or -1. */
int environment_read(struct variables *environment, const char *text, const char *name,
		     const struct expand_request *variables, struct jail_error *err);

enum environment_form {
	ENVIRONMENT_RAW,    /* as an import writes it: a value is the rest of its line */
	ENVIRONMENT_QUOTED, /* pam_env(8), locale.conf(5): quotes around a value are none of it */
};

/* The same of a file that belongs to an image and that nobody here could correct: what is no assignment is left out, with
 * a warning. */
void environment_read_image(struct variables *environment, const char *text, const char *name,
			    enum environment_form form);

#endif
