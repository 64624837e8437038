/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the usage text of each command and prints it. Each command of enroot and enroot-image calls it. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/report.h"
#include "usage.h"

struct command_text {
	const char *name, *usage, *summary, *options;
};

static const struct command_text command_texts[] = {
	{ "batch", "[--] CONFIG [COMMAND] [ARG...]", "start a container from a configuration script",
	  " The line #ENROOT_ROOTFS=NAME|IMAGE of CONFIG names the container.\n" },
	{ "bundle", "[options] [--] IMAGE", "make a self-extracting program from an image",
	  " -a, --all            include user configuration files in the bundle\n"
	  " -c, --checksum       check the image's SHA-256 before each start\n"
	  " -d, --desc TEXT      provide a description of the bundle\n"
	  " -f, --force          overwrite an existing bundle\n"
	  " -o, --output BUNDLE  name of the bundle (defaults to \"IMAGE.run\")\n"
	  " -t, --target DIR     where it extracts to with -x (defaults to \"$PWD/BUNDLE.rootfs\")\n" },
	{ "cache", "ls|prune|verify|get|init [options]", "look after the images and layers that imports keep",
	  " ls           what is kept, what was used last first\n"
	  "   --json          as JSON: one object\n"
	  " prune        remove what was used least recently until it fits the quota (ENROOT_CACHE_MAX_SIZE, _SHARE)\n"
	  "   --all           remove everything\n"
	  "   --older AGE     remove what was not used for AGE: 90m, 12h, 30d\n"
	  "   --to-size SIZE  remove until SIZE is left: 500M, 20G\n"
	  "   --force         also what is in use\n"
	  " verify       read everything and compare it with its digests\n"
	  "   --repair        remove what is damaged\n"
	  " get [-a ARCH] URI [COMMAND [ARG...]]\n"
	  "              print the path of an image, import it if need be; or run COMMAND with the path in ENROOT_IMAGE:\n"
	  "              the image is in use, and stays, as long as that runs\n"
	  " init [DIR]   make the administrator's directory (ENROOT_SHARED_CACHE_PATH); for root\n"
	  " --all-users  of ls, prune and verify: all that is in the administrator's directory, not one's own alone\n" },
	{ "create", "[options] [--] IMAGE", "create a root filesystem from an image",
	  " -f, --force      overwrite an existing root filesystem\n"
	  " -n, --name NAME  name of the container (defaults to the file's name)\n" },
	{ "digest", "[options] [--] URI", "print the digest of an image in a registry",
	  " -a, --arch ARCH  architecture (defaults to the host's)\n" },
	{ "exec", "[options] [--] PID COMMAND [ARG...]", "run a command inside a running container",
	  " -e, --env KEY[=VAL]  export an environment variable\n" },
	{ "export", "[options] [--] NAME", "create an image from a root filesystem",
	  " -f, --force        overwrite an existing image\n"
	  " -o, --output FILE  name of the image (defaults to \"NAME.sqsh\")\n" },
	{ "help", "", "show this text", "" },
	{ "import", "[options] [--] URI", "convert a container image to an enroot image",
	  " -a, --arch ARCH    architecture (defaults to the host's)\n"
	  " -o, --output FILE  name of the image (defaults to \"URI.sqsh\")\n" },
	{ "info", "", "show settings and what this machine can do", "" },
	{ "list", "[options]", "list containers", " -f, --fancy  show processes and namespaces as well\n" },
	{ "load", "[options] [--] URI", "make a root filesystem from an image in a registry",
	  " -a, --arch ARCH  architecture (defaults to the host's)\n"
	  " -f, --force      overwrite an existing root filesystem\n"
	  " -n, --name NAME  name of the container (defaults to the image's)\n" },
	{ "remove", "[options] [--] NAME...", "delete root filesystems",
	  " -f, --force  do not ask\n" },
	{ "start", "[options] [--] NAME|IMAGE [COMMAND] [ARG...]", "start a container",
	  " -c, --conf CONFIG    script with settings, environ(), mounts(), hooks() and rc()\n"
	  " -e, --env KEY[=VAL]  export an environment variable\n"
	  "     --rc SCRIPT      override the image's /etc/rc\n"
	  " -r, --root           be root inside (one user, whoever asks)\n"
	  " -w, --rw             make the root filesystem writable\n"
	  " -m, --mount FSTAB    mount something of the host: SOURCE[:TARGET[:OPTIONS]], or a line of fstab\n"
	  "     --pid            a PID namespace: the command is PID 1\n"
	  "     --net            a network namespace: loopback only\n"
	  "     --ipc            an IPC namespace, and a minimal /dev\n"
	  "     --uts            a UTS namespace: a host name that can be changed\n" },
	{ "version", "", "show the version", "" },
};

#define N_COMMANDS (sizeof(command_texts) / sizeof(command_texts[0]))

static const struct command_text *find_command_text(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(command_texts[i].name, name))
			return &command_texts[i];
	return NULL;
}

int command_describe(const char *name)
{
	const struct command_text *text = find_command_text(name);

	if (text)
		printf("Usage: enroot %s %s\n\n%s.\n%s%s", name, text->usage, text->summary, text->options[0] ? "\n" : "",
		       text->options);
	return 0;
}

int command_usage(const char *name, const char *format, ...)
{
	va_list args;
	char text[512];

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* A bundle goes by a name of its own. */
	return report_error("%s; see: %s%s --help", text, find_command_text(name) ? "enroot " : "", name);
}

int command_help(int argc, char **argv)
{
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
		return command_describe("help");
	if (argc > 2 || (argc == 2 && !find_command_text(argv[1])))
		return report_error("there is no command \"%s\"; see: enroot help", argv[argc - 1]);
	if (argc == 2)
		return command_describe(argv[1]);
	puts("Usage: enroot COMMAND [ARG...]\n\nRuns containers as what they are: programs of their user.\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("    %-8s %s\n", command_texts[i].name, command_texts[i].summary);
	puts("\nenroot COMMAND --help tells more; so does enroot(1).");
	return 0;
}
