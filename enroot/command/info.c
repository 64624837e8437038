/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot version` and `enroot info`, which says what this machine can do and which settings are in force.
 * main.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/container/refusal.h"
#include "native/base/program.h"
#include "command.h"
#include "options.h"

/* For commands that take nothing. */
static int take_nothing(int argc, char **argv)
{
	static const struct command_option none[] = { { .name = NULL } };
	int first, status = command_options(argc, argv, none, OPTIONS_ANYWHERE, &first);

	if (status >= 0)
		return status;
	return first == argc ? -1 : command_usage(argv[0], "it takes no arguments");
}

int command_version(int argc, char **argv)
{
	int status = take_nothing(argc, argv);

	if (status >= 0)
		return status;
	puts(ENROOT_VERSION " (Cellblock; compatible with " ENROOT_COMPATIBLE ")");
	return 0;
}

/* In a child: this process stays where it is. */
static void print_namespaces(void)
{
	struct jail_error err;
	char text[1400];
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		if (!sys_unshare(CLONE_NEWUSER | CLONE_NEWNS))
			_exit(0);
		refusal_explain("unshare", errno, "/proc", &err);
		printf("  user namespaces     refused: %s\n", jail_error_format(&err, text, sizeof(text)));
		fflush(stdout);
		_exit(1);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && !status)
		puts("  user namespaces     work");
}

static void print_program(const char *name, const char *why)
{
	scoped_free char *path = program_find(name);

	printf("  %-18s  %s\n", name, path ? path : why);
}

int command_info(int argc, char **argv)
{
	struct settings settings;
	struct utsname kernel;
	int status = take_nothing(argc, argv);

	if (status >= 0)
		return status;
	if (command_settings(&settings, NULL))
		return 1;
	printf("enroot %s, compatible with %s\n\nThis machine:\n", ENROOT_VERSION, ENROOT_COMPATIBLE);
	if (!uname(&kernel))
		printf("  kernel              %s %s\n", kernel.sysname, kernel.release);
	print_namespaces();
	printf("  /dev/fuse           %s\n", access("/dev/fuse", R_OK | W_OK)
	       ? "cannot be used: `start` of an image file needs it; chmod 0666 /dev/fuse" : "works");
	print_program("squashfuse", "not installed: `start` of an image file needs it");
	print_program("fuse-overlayfs", "not installed: only ENROOT_NATIVE_OVERLAYFS=no needs it");
	print_program("unsquashfs", "not installed: `create` needs it (squashfs-tools)");
	print_program("mksquashfs", "not installed: `export` needs it (squashfs-tools)");
	print_program("nvidia-container-cli", "not installed: GPUs come by CDI, where there is a specification");
	puts("\nSettings:");
	text_list_sort(&settings.variables.list);
	for (size_t i = 0; i < settings.variables.list.n; i++)
		printf("  %s\n", settings.variables.list.items[i]);
	settings_free(&settings);
	return 0;
}
