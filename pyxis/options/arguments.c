/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the plugin's arguments in plugstack.conf. pyxis/slurm calls it. */
#define _GNU_SOURCE
#include "arguments.h"

#include <stddef.h>
#include <string.h>

#include "native/base/argument.h"
#include "request.h"

static int set_switch(bool *on, const char *argument, const char *value, struct jail_error *err)
{
	enum pyxis_switch word;

	if (pyxis_switch_parse(value, &word))
		return jail_fail(err, NULL, 0, "\"%s\" in plugstack.conf: it is 1, true, yes, y, 0, false, no or n", argument);
	*on = word == PYXIS_YES;
	return 0;
}

static int set_path(const char **path, const char *argument, const char *value, struct jail_error *err)
{
	if (*value && *value != '/')
		return jail_fail(err, NULL, 0, "\"%s\" in plugstack.conf: it takes an absolute path", argument);
	*path = *value ? value : NULL;
	return 0;
}

static int set_mount(struct pyxis_arguments *arguments, const char *value, struct jail_error *err)
{
	static const char *const names[] = { "auto", "fuse", "unpack", "kernel" };

	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(value, names[i])) {
			arguments->image_mount = (enum pyxis_image_mount)i;
			return 0;
		}
	return jail_fail(err, NULL, 0, "\"image_mount=%s\" in plugstack.conf: it is auto, fuse, unpack or kernel", value);
}

static int set_scope(struct pyxis_arguments *arguments, const char *value, struct jail_error *err)
{
	if (strcmp(value, "global") && strcmp(value, "job"))
		return jail_fail(err, NULL, 0, "\"container_scope=%s\" in plugstack.conf: it is global or job", value);
	arguments->job_scope = value[0] == 'j';
	return 0;
}

static int parse_one(const char *argument, struct pyxis_arguments *arguments, struct jail_error *err)
{
	const struct { const char *key; bool *on; } switches[] = {
		{ "execute_entrypoint", &arguments->execute_entrypoint }, { "sbatch_support", &arguments->sbatch_support },
		{ "use_enroot_load", &arguments->use_enroot_load },
	};
	const char *value;
	bool squashfuse = false;

	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
		if ((value = jail_value_of(argument, switches[i].key)))
			return set_switch(switches[i].on, argument, value, err);
	if ((value = jail_value_of(argument, "runtime_path")))
		/* Unlike the others it cannot be left empty: containers of jobs are kept there. */
		return *value ? set_path(&arguments->runtime_path, argument, value, err) :
				jail_fail(err, NULL, 0, "\"%s\" in plugstack.conf: it takes an absolute path", argument);
	if ((value = jail_value_of(argument, "importer")))
		return set_path(&arguments->importer, argument, value, err);
	if ((value = jail_value_of(argument, "jail_enter")))
		return set_path(&arguments->jail_enter, argument, value, err);
	if ((value = jail_value_of(argument, "container_scope")))
		return set_scope(arguments, value, err);
	if ((value = jail_value_of(argument, "image_mount")))
		return set_mount(arguments, value, err);
	if ((value = jail_value_of(argument, "use_squashfuse"))) {
		/* Its 0 unpacked, which nobody can want where mounting is possible: image_mount=unpack says that. */
		if (set_switch(&squashfuse, argument, value, err))
			return -1;
		if (squashfuse)
			arguments->image_mount = PYXIS_MOUNT_FUSE;
		return 0;
	}
	return jail_fail(err, NULL, 0, "unknown argument \"%s\" in plugstack.conf; known: runtime_path=, execute_entrypoint=, "
			 "container_scope=, sbatch_support=, use_enroot_load=, importer=, use_squashfuse=, image_mount=, jail_enter=",
			 argument);
}

int pyxis_arguments_parse(int ac, const char *const av[], struct pyxis_arguments *arguments, struct jail_error *err)
{
	*arguments = (struct pyxis_arguments){ .runtime_path = "/run/pyxis", .sbatch_support = true };
	for (int i = 0; i < ac; i++)
		if (parse_one(av[i], arguments, err))
			return -1;
	return 0;
}
