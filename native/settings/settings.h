/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of enroot: from the environment, enroot.conf, the files of enroot.conf.d, defaults. The first to set
 * one wins. */
#ifndef ENROOT_SETTINGS_H
#define ENROOT_SETTINGS_H

#include "native/base/variables.h"
#include "number.h"

struct settings {
	struct variables variables;
};

/* Reads all of it. `script` is the file of --conf, or NULL: its lines "#ENROOT_X=y" override everything. Returns 0
 * or -1. */
int settings_load(struct settings *settings, const char *script, struct jail_error *err);

/* Reads the lines of one configuration file (`name` in errors): for what is not set yet. */
int settings_read(struct settings *settings, const char *text, const char *name, struct jail_error *err);

/* Reads the lines "#ENROOT_X=y" of a script, which replace what is set. */
int settings_read_script(struct settings *settings, const char *text, const char *name, struct jail_error *err);

/* Whether a configuration may set it. */
bool settings_is_key(const char *key);

/* The value, "" when it is not set. */
const char *settings_get(const struct settings *settings, const char *key);
/* Whether that is set, and means yes. */
bool settings_true(const struct settings *settings, const char *key);
/* A number from 0, which was checked when it was set (number.h); `otherwise` when it is not set. */
long settings_number(const struct settings *settings, const char *key, long otherwise);

/* Makes the directory that `key` names, and those above it, with mode 0700 where it is missing. Nobody else but root may own it, or be
 * able to put another in its place. */
int settings_directory(const struct settings *settings, const char *key, struct jail_error *err);

void settings_free(struct settings *settings);

#endif
