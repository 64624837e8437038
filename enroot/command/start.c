/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot start` and `enroot batch`: reads their options and starts the container. main.c and bundle_run.c
 * call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "enroot/container/start.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "start_options.h"

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

int start_add_variables(struct text_list *variables, const char *name, const struct text_list *given)
{
	for (size_t i = 0; i < given->n; i++) {
		const char *text = given->items[i];
		size_t length = strcspn(text, "=");
		if (!variables_is_key(text, length))
			return command_usage(name, "--env %s: it takes KEY or KEY=VALUE", text);
		if (text[length])
			text_list_add(variables, text);
		else if (getenv(text))
			text_list_take(variables, text_format("%s=%s", text, getenv(text)));
	}
	return 0;
}

int start_parse(int argc, char **argv, const struct command_option *more, struct start_options *options)
{
	static const char *const keys[] = { "ENROOT_REMAP_ROOT", "ENROOT_ROOTFS_WRITABLE", "ENROOT_UNSHARE_PID",
					    "ENROOT_UNSHARE_NET", "ENROOT_UNSHARE_IPC", "ENROOT_UNSHARE_UTS" };
	bool flags[6] = { false };
	const char *hold = NULL, *hold_rc = NULL;
	scoped_list variables = { 0 }, mounts = { 0 };
	struct command_option table[MAX_OPTIONS] = {
		{ .name = "root", .letter = 'r', .flag = &flags[0] },  { .name = "rw", .letter = 'w', .flag = &flags[1] },
		{ .name = "pid", .flag = &flags[2] },		       { .name = "net", .flag = &flags[3] },
		{ .name = "ipc", .flag = &flags[4] },		       { .name = "uts", .flag = &flags[5] },
		{ .name = "conf", .letter = 'c', .value = &options->script },
		{ .name = "env", .letter = 'e', .list = &variables },
		{ .name = "mount", .letter = 'm', .list = &mounts },   { .name = "rc", .value = &options->rc },
		/* Of other programs, no user's: container/hold_container.h. */
		{ .name = "hold", .value = &hold },		       { .name = "hold-rc", .value = &hold_rc },
	};
	size_t n = 0;
	int first;

	*options = (struct start_options){ 0 };
	while (table[n].name)
		n++;
	for (; more && more->name && n + 1 < MAX_OPTIONS; more++)
		table[n++] = *more;
	/* The command's options are its own. */
	int status = command_options(argc, argv, table, OPTIONS_AHEAD, &first);
	if (status >= 0)
		return status;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (flags[i])
			text_list_take(&options->settings, text_format("%s=y", keys[i]));
	for (size_t i = 0; i < mounts.n; i++)
		add_mount(&options->mounts, mounts.items[i]);
	options->rest = argv + first;
	options->hold.with_rc = hold_rc;
	if ((hold || hold_rc) && hold_parse(hold_rc ? hold_rc : hold, &options->hold))
		return command_usage(argv[0], "--hold %s: it takes two descriptors, READY,LIFE", hold_rc ? hold_rc : hold);
	return start_add_variables(&options->variables, argv[0], &variables) ? 1 : -1;
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
		.bundled_config = options->bundled_config, .hold = options->hold,
	};
	return container_start(&container);
}

/* Finds what NAME|IMAGE means: 0 with one of the two. */
static int find_container(const char *name, const char *script, char **image, char **root)
{
	struct settings settings;
	struct stat st;

	if (command_settings(&settings, script))
		return 1;
	if (*name && !strchr(name, '/') && name[0] != '.') {
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
	int unfit = command_check_image(name);
	if (!unfit) {
		*image = realpath(name, NULL);
		return *image ? 0 : report_error("%s: %s", name, strerrordesc_np(errno));
	}
	if (unfit > 0)
		return 1;
	return report_error("there is no container and no image file \"%s\"; the containers in %s are shown by: enroot list", name,
			    settings_get(&settings, "ENROOT_DATA_PATH"));
}

int command_start(int argc, char **argv)
{
	struct start_options options;
	char *image = NULL, *root = NULL;

	int status = start_parse(argc, argv, NULL, &options);
	if (status >= 0)
		return status;
	if (!options.rest[0])
		return command_usage("start", "the name of a container or an image is missing");
	if (find_container(options.rest[0], options.script, &image, &root))
		return 1;
	return start_container(&options, image, 0, root, options.rest + 1);
}

/* CONFIG names the container itself. */
int command_batch(int argc, char **argv)
{
	struct start_options options;
	struct settings settings;
	char *image = NULL, *root = NULL;

	int status = start_parse(argc, argv, NULL, &options);
	if (status >= 0)
		return status;
	if (!options.rest[0])
		return command_usage("batch", "the configuration script is missing");
	options.script = options.rest[0];
	if (command_settings(&settings, options.script))
		return 1;
	const char *name = settings_get(&settings, "ENROOT_ROOTFS");
	if (!*name)
		return report_error("%s: it says not what to start; add a line: #ENROOT_ROOTFS=NAME", options.script);
	if (find_container(name, options.script, &image, &root))
		return 1;
	return start_container(&options, image, 0, root, options.rest + 1);
}
