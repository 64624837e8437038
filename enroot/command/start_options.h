/* The options of start, which a bundle takes as well. */
#ifndef ENROOT_START_OPTIONS_H
#define ENROOT_START_OPTIONS_H

#include "../text/variables.h"

struct start_options {
	const char *script, *rc;
	struct text_list variables, mounts;
	struct text_list settings; /* KEY=VALUE */
	bool help;
	char *const *rest;         /* of the arguments */
};

/* Returns 0, or 1 after a message. */
int start_parse(int argc, char **argv, struct start_options *options);

/* Adds "KEY=VALUE", or this process's value of "KEY" if it has one. `name` is the command's. */
int start_add_variable(struct text_list *variables, const char *name, const char *text);

/* Becomes the command in the container: an image from `offset` on, or a created root. Returns only after a failure,
 * the exit status. */
int start_container(const struct start_options *options, char *image, unsigned long long offset, char *root,
		    char *const *arguments);

#endif
