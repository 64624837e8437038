/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the options of a command from its table with getopt_long. Files of this folder and enroot/ call it. */
#define _GNU_SOURCE
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "usage.h"

/* Above every letter. */
#define FIRST_LONG 256

static void set_option(const struct command_option *option, const char *value)
{
	if (option->flag)
		*option->flag = true;
	else if (option->value)
		*option->value = value;
	else
		text_list_add(option->list, value);
}

int command_options(int argc, char **argv, const struct command_option *table, enum option_places places, int *first)
{
	struct option names[MAX_OPTIONS + 2] = { 0 };
	char letters[2 * MAX_OPTIONS + 4];
	size_t n = 0;
	int length = snprintf(letters, sizeof(letters), "%s:", places == OPTIONS_AHEAD ? "+" : "");
	int option;

	for (; n < MAX_OPTIONS && table[n].name; n++) {
		names[n] = (struct option){ table[n].name, table[n].flag ? no_argument : required_argument, NULL,
					    FIRST_LONG + (int)n };
		if (table[n].letter)
			length += snprintf(letters + length, sizeof(letters) - (size_t)length, "%c%s", table[n].letter,
					   table[n].flag ? "" : ":");
	}
	names[n] = (struct option){ "help", no_argument, NULL, 'h' };
	snprintf(letters + length, sizeof(letters) - (size_t)length, "h");
	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		size_t which = option < FIRST_LONG ? 0 : (size_t)(option - FIRST_LONG);
		while (option < FIRST_LONG && table[which].name && table[which].letter != option)
			which++;
		if (option == ':')
			return command_usage(argv[0], "the option %s needs a value", argv[optind - 1]);
		if (table[which].name && option != '?')
			set_option(&table[which], optarg);
		else if (option == 'h')
			return command_describe(argv[0]);
		else if (optopt && optopt < FIRST_LONG)
			return command_usage(argv[0], "unknown option -%c", optopt);
		else
			return command_usage(argv[0], "unknown option %s", argv[optind - 1]);
	}
	*first = optind;
	return -1;
}
