#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../spank_jail/core/scoped.h"
#include "../container/start.h"
#include "../text/report.h"
#include "command.h"
#include "start_options.h"

enum { OPTION_RC = 256, OPTION_PID, OPTION_NET, OPTION_IPC, OPTION_UTS };

/* SOURCE[:TARGET[:OPTIONS]], or a line of fstab. */
static void add_mount(struct text_list *mounts, const char *text)
{
	char *line = text_copy(text, strlen(text));

	if (!strpbrk(line, " \t"))
		for (char *c = line; *c; c++)
			if (*c == ':')
				*c = ' ';
	text_list_take(mounts, line);
}

int start_add_variable(struct text_list *variables, const char *name, const char *text)
{
	size_t length = strcspn(text, "=");

	if (!variables_is_name(text, length))
		return command_usage(name, "--env %s: it takes KEY or KEY=VALUE", text);
	if (text[length])
		text_list_add(variables, text);
	else if (getenv(text))
		text_list_take(variables, text_format("%s=%s", text, getenv(text)));
	return 0;
}

int start_parse(int argc, char **argv, struct start_options *options)
{
	static const struct option names[] = {
		{ "conf", required_argument, NULL, 'c' }, { "env", required_argument, NULL, 'e' },
		{ "rc", required_argument, NULL, OPTION_RC }, { "root", no_argument, NULL, 'r' },
		{ "rw", no_argument, NULL, 'w' }, { "mount", required_argument, NULL, 'm' },
		{ "pid", no_argument, NULL, OPTION_PID }, { "net", no_argument, NULL, OPTION_NET },
		{ "ipc", no_argument, NULL, OPTION_IPC }, { "uts", no_argument, NULL, OPTION_UTS },
		{ "help", no_argument, NULL, 'h' }, { NULL, 0, NULL, 0 },
	};
	static const char *const keys[] = { "ENROOT_UNSHARE_PID", "ENROOT_UNSHARE_NET", "ENROOT_UNSHARE_IPC",
					    "ENROOT_UNSHARE_UTS" };
	int option;

	*options = (struct start_options){ 0 };
	optind = 0;
	opterr = 0;
	/* "+": stop at the name, the command's options are its own. */
	while ((option = getopt_long(argc, argv, "+:c:e:rwm:h", names, NULL)) != -1) {
		switch (option) {
		case 'c': options->script = optarg; break;
		case 'e':
			if (start_add_variable(&options->variables, argv[0], optarg))
				return 1;
			break;
		case OPTION_RC: options->rc = optarg; break;
		case 'r': text_list_add(&options->settings, "ENROOT_REMAP_ROOT=y"); break;
		case 'w': text_list_add(&options->settings, "ENROOT_ROOTFS_WRITABLE=y"); break;
		case 'm': add_mount(&options->mounts, optarg); break;
		case OPTION_PID: case OPTION_NET: case OPTION_IPC: case OPTION_UTS:
			text_list_take(&options->settings, text_format("%s=y", keys[option - OPTION_PID]));
			break;
		case 'h': options->help = true; return 0;
		case ':': return command_usage(argv[0], "the option %s needs a value", argv[optind - 1]);
		default: return command_usage(argv[0], "unknown option %s", argv[optind - 1]);
		}
	}
	options->rest = argv + optind;
	return 0;
}

int start_container(const struct start_options *options, char *image, unsigned long long offset, char *root,
		    char *const *arguments)
{
	struct settings settings;

	/* What the command line says comes before files, as the environment does; a script's lines come last. */
	for (size_t i = 0; i < options->settings.n; i++)
		if (putenv(options->settings.items[i]))
			return report_error("no memory");
	if (command_settings(&settings, options->script))
		return 1;
	struct container container = {
		.settings = &settings, .script = options->script, .rc = options->rc, .variables = options->variables,
		.mounts = options->mounts, .command = arguments, .image = image, .offset = offset, .top = root,
	};
	return container_start(&container);
}

/* Finds what NAME|IMAGE means: 0 with one of the two. */
static int find(const char *name, const char *script, char **image, char **root)
{
	struct settings settings;
	struct stat st;

	if (command_settings(&settings, script))
		return 1;
	if (!strchr(name, '/') && name[0] != '.') {
		*root = command_root(&settings, name);
		if (*root && !stat(*root, &st) && S_ISDIR(st.st_mode)) {
			char *real = realpath(*root, NULL);
			free(*root);
			*root = real;
			return real ? 0 : report_error("%s: %s", name, strerrordesc_np(errno));
		}
		free(*root);
		*root = NULL;
	}
	if (command_is_image(name)) {
		*image = realpath(name, NULL);
		return *image ? 0 : report_error("%s: %s", name, strerrordesc_np(errno));
	}
	if (!access(name, F_OK))
		return report_error("%s: it is no squashfs image", name);
	return report_error("there is no container and no image file \"%s\"; the containers in %s are shown by: enroot list", name,
			    settings_get(&settings, "ENROOT_DATA_PATH"));
}

int command_start(int argc, char **argv)
{
	struct start_options options;
	char *image = NULL, *root = NULL;

	if (start_parse(argc, argv, &options))
		return 1;
	if (options.help)
		return command_describe("start");
	if (!options.rest[0])
		return command_usage("start", "the name of a container or an image is missing");
	if (find(options.rest[0], options.script, &image, &root))
		return 1;
	return start_container(&options, image, 0, root, options.rest + 1);
}

/* CONFIG names the container itself. */
int command_batch(int argc, char **argv)
{
	struct start_options options;
	struct settings settings;
	char *image = NULL, *root = NULL;

	if (start_parse(argc, argv, &options))
		return 1;
	if (options.help)
		return command_describe("batch");
	if (!options.rest[0])
		return command_usage("batch", "the configuration script is missing");
	options.script = options.rest[0];
	if (command_settings(&settings, options.script))
		return 1;
	const char *name = settings_get(&settings, "ENROOT_ROOTFS");
	if (!*name)
		return report_error("%s: it says not what to start; add a line: #ENROOT_ROOTFS=NAME", options.script);
	if (find(name, options.script, &image, &root))
		return 1;
	return start_container(&options, image, 0, root, options.rest + 1);
}
