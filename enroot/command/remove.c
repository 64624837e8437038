#define _GNU_SOURCE
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "../../spank_jail/core/scoped.h"
#include "../text/report.h"
#include "command.h"
#include "staging.h"

static bool agreed(const char *root)
{
	char answer[16];

	fprintf(stderr, "Delete the root filesystem %s? [y/N] ", root);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int remove_one(const struct settings *settings, int data, const char *name, bool force)
{
	scoped_free char *root = command_root(settings, name);
	struct jail_error err;
	struct stat st;

	if (!root)
		return 1;
	if (lstat(root, &st) || !S_ISDIR(st.st_mode))
		return report_error("there is no container \"%s\" in %s; see: enroot list", name,
				    settings_get(settings, "ENROOT_DATA_PATH"));
	if (!force && !agreed(root))
		return 0;
	return staging_remove(data, name, &err) ? report_failure(&err) : 0;
}

int command_remove(int argc, char **argv)
{
	static const struct option names[] = { { "force", no_argument, NULL, 'f' }, { "help", no_argument, NULL, 'h' },
					       { NULL, 0, NULL, 0 } };
	struct settings settings;
	struct jail_error err;
	int option, status = 0;

	if (command_settings(&settings, NULL))
		return 1;
	bool force = settings_true(&settings, "ENROOT_FORCE_OVERRIDE");
	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":fh", names, NULL)) != -1) {
		if (option == 'h')
			return command_describe("remove");
		if (option != 'f')
			return command_usage("remove", "unknown option %s", argv[optind - 1]);
		force = true;
	}
	if (optind == argc)
		return command_usage("remove", "it takes the names of containers");
	scoped_fd data = staging_data(&settings, &err);
	if (data < 0)
		return report_failure(&err);
	for (; optind < argc; optind++)
		status |= remove_one(&settings, data, argv[optind], force);
	return status;
}
