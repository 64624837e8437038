/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `enroot start`, which a bundle takes as well. */
#ifndef ENROOT_START_OPTIONS_H
#define ENROOT_START_OPTIONS_H

#include "enroot/container/hold_container.h"
#include "native/base/variables.h"
#include "options.h"

struct start_options {
	const char *script, *rc;
	struct text_list variables, mounts;
	struct text_list settings; /* KEY=VALUE */
	struct hold hold;
	char *const *rest;         /* of the arguments */
	const struct text_buffer *bundled_config; /* a bundle's configuration files, or NULL */
};

/* Reads start's options, and those of the table `more` (NULL: none). Returns -1, or an exit status as command_options
 * does. */
int start_parse(int argc, char **argv, const struct command_option *more, struct start_options *options);

/* Adds each "KEY=VALUE", and for each "KEY" this process's value if it has one. `name` is the command's. Returns 0, or
 * 1 after a message. */
int start_add_variables(struct text_list *variables, const char *name, const struct text_list *given);

/* Becomes the command in the container: an image from `offset` on, or a created root. Returns only after a failure,
 * the exit status. */
int start_container(const struct start_options *options, char *image, unsigned long long offset, char *root,
		    char *const *arguments);

#endif
