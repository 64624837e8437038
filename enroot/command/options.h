/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of command-line options: how each option is spelt, and where its value goes. */
#ifndef ENROOT_OPTIONS_H
#define ENROOT_OPTIONS_H

#include "native/base/text.h"

/* The most that a table has, its end among them: start has 12, and a bundle five more. */
#define MAX_OPTIONS 24

/* Exactly one of the last three is given. */
struct command_option {
	const char *name; /* behind "--"; NULL ends a table */
	char letter;      /* behind "-"; '\0': none */
	bool *flag;       /* becomes true */
	const char **value;     /* the last value given */
	struct text_list *list; /* all values given */
};

/* Where options may stand. */
enum option_places {
	OPTIONS_ANYWHERE,
	OPTIONS_AHEAD, /* of the first other word, which begins somebody else's command line */
};

/* Reads them in every spelling of getopt_long(3). Returns -1 with `*first`, the index of the first word that is no
 * option, or the command's exit status: after "--help" (unless the table has it), or after a message. */
int command_options(int argc, char **argv, const struct command_option *table, enum option_places places, int *first);

#endif
