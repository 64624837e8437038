/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a GPU driver by the node's CDI specifications. jail_driver.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "native/cdi/apply.h"
#include "driver.h"

#define USUAL "nvidia.com/gpu=all"

static const char *base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int take_link(void *context, const char *content, const char *path, struct jail_error *err)
{
	/* All libraries lie in one directory here: a link between directories becomes one between names. Links
	 * below /dev go on into the specification that is made of this one. */
	if (!jail_cdi_is_library(base(path)))
		return 0;
	return driver_add_link(context, base(path), base(content), err);
}

static int take_edits(struct driver_set *set, const char *file, const struct jail_cdi_edits *edits,
		      struct jail_error *err)
{
	for (size_t i = 0; i < edits->mounts.n; i++) {
		const struct jail_cdi_mount *mount = &edits->mounts.items[i];
		int result = 0;
		if (mount->place <= JAIL_CDI_PROGRAMS)
			result = driver_add_file(set, base(mount->container_path), mount->host_path, mount->soname,
						 mount->place == JAIL_CDI_PROGRAMS, err);
		else if (mount->place == JAIL_CDI_FOREIGN)
			result = driver_add_notice(set, err, "%s: left out: a library for another kind of processor",
						   mount->host_path);
		if (result)
			return jail_error_at(err, file, mount->line, NULL);
	}
	for (size_t i = 0; i < edits->hooks.n; i++)
		if (jail_cdi_hook_links(&edits->hooks.items[i], take_link, set, err))
			return jail_error_at(err, file, edits->hooks.items[i].line, NULL);
	return 0;
}

static int take_device(struct driver_set *set, const struct driver_request *request, const char *device,
		       struct jail_error *err)
{
	struct jail_entry entry = { .target = (char *)(uintptr_t)device, .type = JAIL_CDI };
	struct jail_cdi_found *found = &set->found[set->n_found];

	if (jail_cdi_name_check(device, err))
		return -1;
	for (size_t i = 0; i < request->spec_dirs.n; i++)
		entry.parameters[entry.n_parameters++] = (struct jail_parameter){ "spec-dir", request->spec_dirs.items[i] };
	if (jail_cdi_find(&entry, false, found, err))
		return -1;
	set->n_found++;
	/* A second device of a file: what is of the whole specification counts once. */
	return jail_cdi_check(found, err) || take_edits(set, found->spec.file, &found->spec.edits, err) ||
	       take_edits(set, found->spec.file, &found->device->edits, err) ? -1 : 0;
}

int driver_from_cdi(struct driver_set *set, const struct driver_request *request, struct jail_error *err)
{
	const bool asked = request->devices.n;
	const size_t n = asked ? request->devices.n : 1;

	set->found = calloc(n, sizeof(*set->found));
	if (!set->found)
		return jail_fail(err, "malloc", ENOMEM, "not enough memory for the CDI specifications");
	for (size_t i = 0; i < n; i++) {
		const char *device = asked ? request->devices.items[i] : USUAL;
		if (!take_device(set, request, device, err))
			continue;
		if (!asked && err->number == ENODEV)
			return 0;
		return jail_error_at(err, NULL, 0, device);
	}
	return 0;
}
