/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of CDI specifications: any bytes are a specification or an error, and never a crash. */
#define _GNU_SOURCE
#include <string.h>

#include "native/cdi/cdi.h"
#include "native/testing/fuzz.h"

static void check_strings(const struct jail_cdi_strings *strings)
{
	for (size_t i = 0; i < strings->n; i++)
		MUST(strings->items[i]);
}

static void check_edits(const struct jail_cdi_edits *edits)
{
	for (size_t i = 0; i < edits->device_nodes.n; i++)
		MUST(edits->device_nodes.items[i].path && edits->device_nodes.items[i].path[0] == '/');
	for (size_t i = 0; i < edits->mounts.n; i++)
		MUST(edits->mounts.items[i].host_path && edits->mounts.items[i].container_path);
	for (size_t i = 0; i < edits->hooks.n; i++) {
		check_strings(&edits->hooks.items[i].arguments);
		check_strings(&edits->hooks.items[i].environment);
	}
	check_strings(&edits->environment);
	for (size_t i = 0; i < edits->environment.n; i++)
		MUST(strchr(edits->environment.items[i], '='));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jail_cdi_spec spec;
	struct jail_error err = { 0 };

	if (jail_cdi_spec_parse((const char *)data, size, "fuzz", &spec, &err)) {
		must_explain(&err);
		return 0;
	}
	MUST(spec.kind);
	check_edits(&spec.edits);
	for (size_t i = 0; i < spec.devices.n; i++) {
		MUST(spec.devices.items[i].name);
		check_edits(&spec.devices.items[i].edits);
	}
	jail_cdi_spec_free(&spec);
	return 0;
}
