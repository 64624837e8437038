#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../spank_jail/core/cdi.h"
#include "../../spank_jail/core/scoped.h"
#include "../text/program.h"
#include "../text/report.h"
#include "../container/fstab.h"
#include "hook.h"

#define KIND "nvidia.com/gpu="

static int bind(struct container *container, const char *from, const char *to, const char *options,
		struct jail_error *err)
{
	scoped_free char *source = fstab_field(from);
	scoped_free char *target = fstab_field(to);
	scoped_free char *line = text_format("%s %s none x-create=auto,bind,%s\n", source, target, options);

	return hook_mount(container, line, err);
}

/* --link TARGET::/PATH, --folder /PATH: arguments of nvidia-ctk's own hooks, the only ones that are known. */
static int make_link(struct container *container, const char *pair, struct jail_error *err)
{
	const char *colons = strstr(pair, "::");

	if (!colons || colons[2] != '/')
		return 0;
	scoped_free char *content = text_copy(pair, (size_t)(colons - pair));
	return hook_link(container, colons + 2, content, err);
}

static int run_hook(struct container *container, const struct jail_cdi_hook *found, struct text_list *folders,
		    struct jail_error *err)
{
	for (size_t i = 0; i + 1 < found->arguments.n; i++) {
		const char *value = found->arguments.items[i + 1];
		if (!strcmp(found->arguments.items[i], "--link") && make_link(container, value, err))
			return -1;
		if (!strcmp(found->arguments.items[i], "--folder"))
			text_list_add(folders, value);
	}
	return 0;
}

static int apply(struct container *container, const struct jail_cdi_edits *edits, struct text_list *folders,
		 struct jail_error *err)
{
	for (size_t i = 0; i < edits->device_nodes.n; i++) {
		const struct jail_cdi_device_node *node = &edits->device_nodes.items[i];
		/* The host's /dev has it already, unless it is a small one. */
		if (!hook_there(container, node->path) &&
		    bind(container, node->host_path ? node->host_path : node->path, node->path, "nosuid,noexec", err))
			return -1;
	}
	for (size_t i = 0; i < edits->mounts.n; i++) {
		const struct jail_cdi_mount *mount = &edits->mounts.items[i];
		if (bind(container, mount->host_path, mount->container_path, "ro,nosuid,nodev", err))
			return -1;
	}
	for (size_t i = 0; i < edits->hooks.n; i++)
		if (run_hook(container, &edits->hooks.items[i], folders, err))
			return -1;
	for (size_t i = 0; i < edits->environment.n; i++)
		variables_set_pair(&container->environment, edits->environment.items[i]);
	return 0;
}

/* The container's libraries by the host's ldconfig: nothing of the image runs outside it. */
static int update_cache(const struct container *container, const struct text_list *folders, struct jail_error *err)
{
	scoped_list arguments = { 0 };

	if (!folders->n)
		return 0;
	text_list_add(&arguments, "/sbin/ldconfig");
	text_list_add(&arguments, "-r");
	text_list_add(&arguments, container->top);
	for (size_t i = 0; i < folders->n; i++)
		text_list_add(&arguments, folders->items[i]);
	const struct program program = { .arguments = arguments.items, .quiet = true,
					 .prepare = container_keep_capabilities };
	int status = program_run(&program, err);
	if (status > 0)
		report_warning("ldconfig ended with status %d: programs may not find the driver's libraries", status);
	return status < 0 ? -1 : 0;
}

/* Where specifications lie, by ENROOT_CDI_PATH: directories with colons between them. Not set: where every runtime
 * looks. */
static void set_directories(struct jail_entry *entry, char *path)
{
	for (char *rest = path, *folder; (folder = strsep(&rest, ":"));)
		if (*folder && entry->n_parameters < JAIL_MAX_PARAMETERS)
			entry->parameters[entry->n_parameters++] = (struct jail_parameter){ "spec-dir", folder };
}

int hook_nvidia_cdi(struct container *container, const char *devices, struct jail_error *err)
{
	scoped_free char *copy = text_copy(devices, strlen(devices));
	scoped_list folders = { 0 };
	bool first = true;

	if (!strcmp(devices, "none"))
		return 0;
	for (char *rest = copy, *device; (device = strsep(&rest, ","));) {
		scoped_free char *name = text_format(KIND "%s", device);
		scoped_free char *path = text_format("%s", settings_get(container->settings, "ENROOT_CDI_PATH"));
		struct jail_entry entry = { .target = name, .type = JAIL_CDI };
		struct jail_cdi_found found;
		set_directories(&entry, path);
		/* A user's container has a user's rights, whoever wrote the files; root is nobody in its namespace. */
		if (jail_cdi_find(&entry, !container->privileged, &found, err)) {
			if (err->number != ENODEV)
				return -1;
			/* Images set the variable; most nodes have no GPU. */
			report_warning("no GPU \"%s\": nvidia-container-cli is not installed, and no CDI specification in /etc/cdi or "
				       "/var/run/cdi describes it", device);
			return 0;
		}
		int result = (first && apply(container, &found.spec.edits, &folders, err)) ||
			     apply(container, &found.device->edits, &folders, err) ? -1 : 0;
		jail_cdi_spec_free(&found.spec);
		if (result)
			return -1;
		first = false;
	}
	return update_cache(container, &folders, err);
}
