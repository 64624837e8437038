/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the hooks that prepare a container: first the built-in ones of enroot/hooks, then the scripts of the
 * administrator and the user in hooks.d. start.c calls it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "enroot/hooks/hook.h"
#include "native/base/program.h"
#include "native/container/namespaces.h"
#include "container.h"
#include "drop_ins.h"
#include "environment_file.h"
#include "fstab_apply.h"

#define MAX_HOOK_FILE (4 * 1024 * 1024)

/* In this order, before those of hooks.d: what they make, others may look at. */
static const struct { const char *name; hook *run; } built_in[] = {
	{ "shadow.sh", hook_shadow }, { "home.sh", hook_home }, { "localtime.sh", hook_localtime },
	{ "apt.sh", hook_apt }, { "cgroups.sh", hook_cgroups }, { "devices.sh", hook_devices },
	{ "nvidia.sh", hook_nvidia }, { "mellanox.sh", hook_mellanox },
};

/* The files that hooks read and append to. */
static int open_files(const struct container *container, struct jail_error *err)
{
	scoped_buffer text = { 0 };

	text_append(&text, "", 0);
	for (size_t i = 0; i < container->environment.list.n; i++) {
		/* A file of lines has no room for a value of several; it stays in the environment as it is. */
		if (strchr(container->environment.list.items[i], '\n'))
			continue;
		text_append_string(&text, container->environment.list.items[i]);
		text_append(&text, "\n", 1);
	}
	return container_write(container, "environment", text.text, 0600, err) ||
	       container_write(container, "fstab", "", 0600, err) ? -1 : 0;
}

/* The file is the environment: what a hook took out of it is gone. What it has no room for stays. */
static int replace_environment(struct container *container, const char *text, struct jail_error *err)
{
	scoped_variables all = { 0 };

	for (size_t i = 0; i < container->environment.list.n; i++)
		if (strchr(container->environment.list.items[i], '\n'))
			variables_set_pair(&all, container->environment.list.items[i]);
	if (environment_read(&all, text, "ENROOT_ENVIRON", NULL, err))
		return -1;
	variables_free(&container->environment);
	container->environment = all;
	all = (struct variables){ 0 };
	return 0;
}

static int read_files(struct container *container, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, container_lookup_for_mounts, container };
	scoped_free char *environment_path = text_format("%s/environment", container->work);
	scoped_free char *mounts_path = text_format("%s/fstab", container->work);
	scoped_free char *environment = text_read(AT_FDCWD, environment_path, MAX_HOOK_FILE, NULL, err);
	scoped_free char *mounts = environment ? text_read(AT_FDCWD, mounts_path, MAX_HOOK_FILE, NULL, err) : NULL;

	if (!mounts || replace_environment(container, environment, err))
		return -1;
	return fstab_apply_text(mounts, "ENROOT_MOUNTS", true, container->root, container->top, &variables, err) ||
	       fstab_apply_text(mounts, "ENROOT_MOUNTS", false, container->root, container->top, &variables, err) ? -1 : 0;
}

static int run_one(const struct container *container, const char *path, struct jail_error *err)
{
	scoped_variables environment = { 0 };
	char *const arguments[] = { (char *)(uintptr_t)path, NULL };

	container_hook_environment(container, &environment);
	const struct program program = { .arguments = arguments, .environment = environment.list.items,
					 .prepare = namespaces_keep_capabilities };
	umask(container->mask);
	int status = program_run(&program, err);
	umask(022);
	if (status <= 0)
		return status;
	jail_fail(err, NULL, 0, "the hook ended with status %d%s", status, status == 127
		  ? "; is the program of its first line there?" : "");
	return jail_error_at(err, path, 0, NULL);
}

int container_hooks(struct container *container, struct jail_error *err)
{
	struct drop_ins files;
	int result = 0;

	drop_ins_find(&files, container->settings, "hooks.d", ".sh", true);
	for (size_t i = 0; !result && i < sizeof(built_in) / sizeof(built_in[0]); i++)
		if (!drop_ins_replace(&files, built_in[i].name))
			result = built_in[i].run(container, err);
	bool outside = files.paths.n || container->script;
	if (!result && outside)
		result = open_files(container, err);
	for (size_t i = 0; !result && i < files.paths.n; i++)
		result = run_one(container, files.paths.items[i], err);
	drop_ins_free(&files);
	if (!result)
		result = container_script(container, "hooks", NULL, err);
	return result || !outside ? result : read_files(container, err);
}
