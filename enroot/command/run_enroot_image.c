/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the program enroot-image in place of this one, for the commands that it does (import, load, digest, cache).
 * main.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "command.h"

/* import, load, digest, cache: LIBRARY_PATH/enroot-image does them, with the settings as its environment. */
int command_enroot_image(int argc, char **argv)
{
	struct settings settings;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return command_describe(argv[0]);
	if (command_settings(&settings, NULL))
		return 1;
	for (size_t i = 0; i < settings.variables.list.n; i++)
		if (putenv(settings.variables.list.items[i]))
			return report_error("no memory");
	scoped_free char *program = text_format("%s/enroot-image", settings_get(&settings, "ENROOT_LIBRARY_PATH"));
	scoped_list arguments = { 0 };
	text_list_add(&arguments, program);
	for (int i = 0; i < argc; i++)
		text_list_add(&arguments, argv[i]);
	execv(program, arguments.items);
	return report_error("%s: cannot run %s: %s. It belongs to enroot (make -C enroot/importing install); ENROOT_LIBRARY_PATH says "
			    "where it is", argv[0], program, strerrordesc_np(errno));
}
