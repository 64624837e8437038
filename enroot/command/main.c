/* SPDX-License-Identifier: Apache-2.0 */
/* enroot: a container runtime without privileges, one process and no shell (docs/enroot.md). People run it, and pyxis
 * does.
 *
 * Its exit status is that of the command for start, exec and batch; otherwise 0, or 1 when something is wrong.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "native/base/report.h"
#include "bundle.h"
#include "command.h"

static const struct { const char *name; command *run; } commands[] = {
	{ "batch", command_batch },   { "bundle", command_bundle },   { "create", command_create },
	{ "exec", command_exec },     { "export", command_export },   { "help", command_help },
	{ "info", command_info },     { "list", command_list },       { "remove", command_remove },
	{ "start", command_start },   { "version", command_version }, { "--help", command_help },
	{ "-h", command_help },       { "--version", command_version },
	/* Registries: another program of the project's. */
	{ "import", command_enroot_image },  { "load", command_enroot_image },      { "digest", command_enroot_image },
	{ "cache", command_enroot_image },
};

/* A descriptor of ours that became 0, 1 or 2 would be somebody's input or output. */
static void open_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			_exit(1);
}

int main(int argc, char **argv)
{
	int status;

	open_standard_streams();
	jail_place = "in the container";

	if (bundle_is_one(&status, argc, argv))
		return status;
	if (argc < 2) {
		command_help(1, argv);
		return 1;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(argv[1], commands[i].name)) {
			status = commands[i].run(argc - 1, argv + 1);
			return fflush(stdout) ? report_error("cannot write to standard output") : status;
		}
	return report_error("there is no command \"%s\"; see: enroot help", argv[1]);
}
