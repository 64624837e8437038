/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of enroot's commands. Each gets its arguments, its own name first, and returns the exit status. */
#ifndef ENROOT_COMMAND_H
#define ENROOT_COMMAND_H

#include "native/settings/settings.h"
#include "options.h"
#include "usage.h"
#include "native/base/version.h"

typedef int command(int argc, char **argv);

command command_batch, command_bundle, command_create, command_exec, command_export, command_enroot_image,
	command_info, command_list, command_remove, command_start, command_version;

/* Reads the settings; returns 0, or 1 after a message. */
int command_settings(struct settings *settings, const char *script);

/* What commands of one `*word` begin with: their options, that word, the settings. Without it they say what it is
 * (`takes`). Returns -1, or the exit status as command_options does. */
int command_begin(int argc, char **argv, const struct command_option *table, const char *takes, const char **word,
		  struct settings *settings);

/* The path DATA_PATH/NAME of a container; the caller frees it. NULL after a message: NAME holds a "/" or is a dot
 * file. */
char *command_root(const struct settings *settings, const char *name);

/* Whether a new container may be called `name`, or with `force` one that takes the place of another: before minutes are spent.
 * Returns 0, or 1 after a message. */
int command_check_name(const struct settings *settings, const char *name, bool force);

/* Whether `path` can be an image: a whole squashfs file, version 4.0, of a compression that there is; of its content nothing is
 * read. Returns 0; 1 after a message that says what it is instead; -1: there is no such file. */
int command_check_image(const char *path);

#endif
