/* SPDX-License-Identifier: Apache-2.0 */
/* Shows NVIDIA GPUs in the container by the node's CDI specification, where the program nvidia-container-cli is not
 * installed. nvidia.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/cdi/cdi.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/report.h"
#include "native/container/fstab.h"
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

/* What one start gathers from all devices. */
struct gathered {
	struct text_list files;     /* specifications whose common edits are done */
	struct text_list folders;   /* of libraries */
	struct text_buffer left_out; /* hooks that nothing here replaces */
};

/* TARGET::/PATH */
static int make_link(struct container *container, const char *pair, struct jail_error *err)
{
	const char *colons = strstr(pair, "::");

	if (!colons || colons[2] != '/')
		return jail_fail(err, NULL, 0, "expected TARGET::/PATH after --link in a CDI specification, found \"%.200s\"", pair);
	scoped_free char *content = text_copy(pair, (size_t)(colons - pair));
	return hook_link(container, colons + 2, content, err);
}

/* The value of the option at `*i`, "--name value" or "--name=value"; NULL: it is another one. */
static const char *value_of(const struct jail_cdi_hook *found, size_t *i, const char *name)
{
	const char *word = found->arguments.items[*i];
	size_t length = strlen(name);

	if (strncmp(word, name, length))
		return NULL;
	if (word[length] == '=')
		return word + length + 1;
	return !word[length] && *i + 1 < found->arguments.n ? found->arguments.items[++*i] : NULL;
}

/* A hook is a program that a runtime runs as root. What those of nvidia-ctk do for a driver's libraries is done here;
 * the rest is left out: docs/enroot.md. */
static int replace_hook(struct container *container, const struct jail_cdi_hook *found, struct gathered *all,
			struct jail_error *err)
{
	/* Of devices that root makes, which a user's container takes as they are. */
	static const char *const pointless[] = { "chmod", "disable-device-node-modification" };
	size_t at = found->arguments.n > 1 && !strcmp(found->arguments.items[1], "hook") ? 2 : 1;
	const char *name = at < found->arguments.n ? found->arguments.items[at] : "";
	bool links = !strcmp(name, "create-symlinks"), cache = !strcmp(name, "update-ldcache");

	for (size_t i = 0; i < sizeof(pointless) / sizeof(pointless[0]); i++)
		if (!strcmp(name, pointless[i]))
			return 0;
	for (size_t i = at; i < found->arguments.n && (links || cache); i++) {
		const char *value = value_of(found, &i, links ? "--link" : "--folder");
		if (value && links && make_link(container, value, err))
			return -1;
		if (value && cache)
			text_list_add(&all->folders, value);
	}
	if (!links && !cache) {
		scoped_free char *text = text_format("%s%s%s%s", all->left_out.length ? ", " : "",
						     found->path ? found->path : "a hook without a path", *name ? " " : "", name);
		text_append_string(&all->left_out, text);
	}
	return 0;
}

static int apply(struct container *container, const struct jail_cdi_edits *edits, struct gathered *all,
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
		bool read_only = mount->attributes & MOUNT_ATTR_RDONLY, data = mount->attributes & MOUNT_ATTR_NOEXEC;
		scoped_free char *options = text_format("nosuid,nodev%s%s", read_only ? ",ro" : "", data ? ",noexec" : "");
		if (bind(container, mount->host_path, mount->container_path, options, err))
			return -1;
	}
	for (size_t i = 0; i < edits->hooks.n; i++)
		if (replace_hook(container, &edits->hooks.items[i], all, err))
			return -1;
	for (size_t i = 0; i < edits->environment.n; i++)
		variables_set_pair(&container->environment, edits->environment.items[i]);
	return 0;
}

/* Where specifications lie, by ENROOT_CDI_PATH: directories with colons between them. Not set: where every runtime
 * looks. */
static void set_directories(struct jail_entry *entry, char *path)
{
	for (char *rest = path, *folder; (folder = strsep(&rest, ":"));)
		if (*folder && entry->n_parameters < JAIL_MAX_PARAMETERS)
			entry->parameters[entry->n_parameters++] = (struct jail_parameter){ "spec-dir", folder };
}

static int apply_found(struct container *container, const struct jail_cdi_found *found, struct gathered *all,
		       struct jail_error *err)
{
	bool known = false;

	for (size_t i = 0; i < all->files.n; i++)
		known = known || !strcmp(all->files.items[i], found->spec.file);
	if (!known) {
		text_list_add(&all->files, found->spec.file);
		if (apply(container, &found->spec.edits, all, err))
			return -1;
	}
	return apply(container, &found->device->edits, all, err);
}

static int apply_devices(struct container *container, const char *devices, struct gathered *all, struct jail_error *err)
{
	scoped_free char *copy = text_copy(devices, strlen(devices));

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
			report_warning("no GPU \"%s\": nvidia-container-cli is not installed, and no CDI specification in %s describes "
				       "it", device, *settings_get(container->settings, "ENROOT_CDI_PATH")
				       ? settings_get(container->settings, "ENROOT_CDI_PATH") : "/etc/cdi or /var/run/cdi");
			continue;
		}
		int result = apply_found(container, &found, all, err);
		jail_cdi_spec_free(&found.spec);
		if (result)
			return -1;
	}
	return 0;
}

int hook_nvidia_cdi(struct container *container, const char *devices, struct jail_error *err)
{
	struct gathered all = { 0 };

	if (!strcmp(devices, "none"))
		return 0;
	int result = apply_devices(container, devices, &all, err);
	if (!result && all.left_out.length)
		report_warning("hooks of the CDI specification that are left out: %s", all.left_out.text);
	if (!result)
		result = hook_update_libraries(container, &all.folders, err);
	text_list_free(&all.files);
	text_list_free(&all.folders);
	text_buffer_free(&all.left_out);
	return result;
}
