/* SPDX-License-Identifier: Apache-2.0 */
/* Shows NVIDIA GPUs and their driver in the container as NVIDIA_VISIBLE_DEVICES asks. container/hooks.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "native/base/scoped.h"
#include "native/base/program.h"
#include "native/container/namespaces.h"
#include "hook.h"

static const char *const capabilities[] = { "compute", "utility", "video", "graphics", "display", "ngx", "compat32" };

#define N_CAPABILITIES (sizeof(capabilities) / sizeof(capabilities[0]))

/* Options of nvidia-container-cli for NVIDIA_DRIVER_CAPABILITIES, a list with commas. */
static int add_capabilities(struct text_list *arguments, const char *wanted, struct jail_error *err)
{
	scoped_free char *copy = text_copy(wanted, strlen(wanted));

	for (char *rest = copy, *word; (word = strsep(&rest, ","));) {
		bool known = !*word || !strcmp(word, "all");
		for (size_t i = 0; i < N_CAPABILITIES; i++)
			if (!strcmp(word, "all") || !strcmp(word, capabilities[i])) {
				text_list_take(arguments, text_format("--%s", capabilities[i]));
				known = true;
			}
		if (!known)
			return jail_fail(err, NULL, 0, "NVIDIA_DRIVER_CAPABILITIES: \"%.32s\" is not known; there are all, compute, "
					 "utility, video, graphics, display, ngx, compat32", word);
	}
	return 0;
}

/* NVIDIA_REQUIRE_*: versions that the image asks the driver for, such as "cuda>=12.0". */
static void add_requirements(const struct container *container, struct text_list *arguments)
{
	const char *off = variables_get(&container->environment, "NVIDIA_DISABLE_REQUIRE");
	const struct text_list *pairs = &container->environment.list;

	for (size_t i = 0; i < pairs->n && !(off && settings_means_yes(off)); i++)
		if (text_starts(pairs->items[i], "NVIDIA_REQUIRE_"))
			text_list_take(arguments, text_format("--require=%s", strchr(pairs->items[i], '=') + 1));
}

/* NVIDIA's own tool, which mounts devices, libraries and programs of the driver and runs ldconfig. */
static int configure(struct container *container, const char *devices, const char *wanted, struct jail_error *err)
{
	scoped_list arguments = { 0 };
	scoped_variables environment = { 0 };

	text_list_add(&arguments, "nvidia-container-cli");
	text_list_add(&arguments, "--user");
	text_list_add(&arguments, "configure");
	text_list_add(&arguments, "--no-cgroups");
	text_list_add(&arguments, "--ldconfig=@/sbin/ldconfig");
	if (strcmp(devices, "none"))
		text_list_take(&arguments, text_format("--device=%s", devices));
	add_requirements(container, &arguments);
	if (add_capabilities(&arguments, wanted, err))
		return -1;
	text_list_add(&arguments, container->top);
	container_hook_environment(container, &environment);
	const struct program program = { .arguments = arguments.items, .environment = environment.list.items,
					 .prepare = namespaces_keep_capabilities };
	int status = program_run(&program, err);
	if (status > 0)
		return jail_fail(err, NULL, 0, "nvidia-container-cli ended with status %d (its message is above); "
				 "NVIDIA_VISIBLE_DEVICES=void starts the container without GPUs", status);
	return status;
}

int hook_nvidia(struct container *container, struct jail_error *err)
{
	const char *devices = variables_get(&container->environment, "NVIDIA_VISIBLE_DEVICES");
	const char *wanted = variables_get(&container->environment, "NVIDIA_DRIVER_CAPABILITIES");

	if (!devices || !*devices || !strcmp(devices, "void"))
		return 0;
	scoped_free char *tool = program_find("nvidia-container-cli");
	if (tool)
		return configure(container, devices, wanted && *wanted ? wanted : "utility", err);
	return hook_nvidia_cdi(container, devices, err);
}
