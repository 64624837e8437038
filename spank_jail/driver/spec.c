/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the CDI specification with which a mount plan shows the node's driver directory in the jail, with devices
 * and variables of the driver. docs/jail-plan.md has that line of the plan. fill.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* A text as JSON. What CDI files hold has no control characters in paths that exist; they are escaped all the same. */
static void put_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
		if (*c == '"' || *c == '\\')
			fprintf(out, "\\%c", *c);
		else if (*c < 0x20 || *c == 0x7f)
			fprintf(out, "\\u%04x", *c);
		else
			fputc(*c, out);
	}
	fputc('"', out);
}

static void put_field(FILE *out, const char *key, const char *text)
{
	if (text) {
		fprintf(out, ", \"%s\": ", key);
		put_text(out, text);
	}
}

static void put_number(FILE *out, const char *key, const struct jail_cdi_number *number)
{
	if (number->given)
		fprintf(out, ", \"%s\": %lld", key, (long long)number->value);
}

/* Starts an item of a list. */
static void next(FILE *out, bool *first)
{
	fputs(*first ? "\n      " : ",\n      ", out);
	*first = false;
}

static void put_device(FILE *out, const struct jail_cdi_device_node *node)
{
	fputs("{\"path\": ", out);
	put_text(out, node->path);
	put_field(out, "hostPath", node->host_path);
	put_field(out, "type", node->type);
	put_field(out, "permissions", node->permissions);
	put_number(out, "major", &node->major);
	put_number(out, "minor", &node->minor);
	put_number(out, "fileMode", &node->mode);
	put_number(out, "uid", &node->uid);
	put_number(out, "gid", &node->gid);
	fputc('}', out);
}

static void put_mount(FILE *out, const char *host, const char *jail, const struct jail_cdi_strings *options)
{
	fputs("{\"hostPath\": ", out);
	put_text(out, host);
	put_field(out, "containerPath", jail);
	fputs(", \"options\": [", out);
	for (size_t i = 0; i < options->n; i++) {
		fputs(i ? ", " : "", out);
		put_text(out, options->items[i]);
	}
	fputs("]}", out);
}

struct link_output {
	FILE *out;
	bool first;
};

static int put_device_link(void *context, const char *content, const char *path, struct jail_error *err)
{
	struct link_output *links = context;
	char pair[2100];

	(void)err;
	if (strncmp(path, "/dev/", 5))
		return 0;
	snprintf(pair, sizeof(pair), "%s::%s", content, path);
	next(links->out, &links->first);
	fputs("{\"hookName\": \"createContainer\", \"path\": \"/usr/bin/nvidia-cdi-hook\", \"args\": "
	      "[\"nvidia-cdi-hook\", \"create-symlinks\", \"--link\", ", links->out);
	put_text(links->out, pair);
	fputs("]}", links->out);
	return 0;
}

/* Calls `put` for the edits of each device, and for those of its specification once. */
static void each_edits(const struct driver_set *set, void (*put)(FILE *, bool *, const struct jail_cdi_edits *),
		       FILE *out, bool *first)
{
	for (size_t i = 0; i < set->n_found; i++) {
		bool seen = false;
		for (size_t j = 0; j < i; j++)
			seen |= !strcmp(set->found[i].spec.file, set->found[j].spec.file);
		if (!seen)
			put(out, first, &set->found[i].spec.edits);
		put(out, first, &set->found[i].device->edits);
	}
}

static void put_environment(FILE *out, bool *first, const struct jail_cdi_edits *edits)
{
	for (size_t i = 0; i < edits->environment.n; i++) {
		next(out, first);
		put_text(out, edits->environment.items[i]);
	}
}

static void put_devices(FILE *out, bool *first, const struct jail_cdi_edits *edits)
{
	for (size_t i = 0; i < edits->device_nodes.n; i++) {
		next(out, first);
		put_device(out, &edits->device_nodes.items[i]);
	}
}

static void put_other_mounts(FILE *out, bool *first, const struct jail_cdi_edits *edits)
{
	for (size_t i = 0; i < edits->mounts.n; i++) {
		const struct jail_cdi_mount *mount = &edits->mounts.items[i];
		if (mount->place != JAIL_CDI_AS_NAMED)
			continue;
		next(out, first);
		put_mount(out, mount->host_path, mount->container_path, &mount->options);
	}
}

static void put_links(FILE *out, bool *first, const struct jail_cdi_edits *edits)
{
	struct jail_error ignored;
	struct link_output links = { out, *first };

	/* They were checked when the set was made of them. */
	for (size_t i = 0; i < edits->hooks.n; i++)
		(void)jail_cdi_hook_links(&edits->hooks.items[i], put_device_link, &links, &ignored);
	*first = links.first;
}

static void put_own_mounts(FILE *out, bool *first, const char *where)
{
	static const struct { const char *name, *path; } parts[] = {
		{ "lib64", JAIL_CDI_LIBRARY_DIRECTORY }, { "bin", JAIL_CDI_PROGRAM_DIRECTORY },
	};
	static const char *options[] = { "rbind", "ro", "nosuid", "nodev" };
	const struct jail_cdi_strings list = { options, sizeof(options) / sizeof(options[0]) };
	char *host;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		if (asprintf(&host, "%s/%s", where, parts[i].name) < 0)
			continue;
		next(out, first);
		put_mount(out, host, parts[i].path, &list);
		free(host);
	}
}

char *driver_spec(const struct driver_set *set, const char *where, struct jail_error *err)
{
	char *text = NULL;
	size_t size;
	bool first = true;
	FILE *out = open_memstream(&text, &size);

	if (!out) {
		jail_fail(err, "open_memstream", errno, "not enough memory for the specification of the driver's directory");
		return NULL;
	}
	fputs("{\n  \"cdiVersion\": \"0.5.0\",\n  \"kind\": \"cellblock.driver/node\",\n  \"containerEdits\": {\n    \"mounts\": [",
	      out);
	if (set->n_files)
		put_own_mounts(out, &first, where);
	each_edits(set, put_other_mounts, out, &first);
	fputs("],\n    \"env\": [", out);
	first = true;
	each_edits(set, put_environment, out, &first);
	fputs("],\n    \"hooks\": [", out);
	first = true;
	each_edits(set, put_links, out, &first);
	fputs("],\n    \"deviceNodes\": [", out);
	first = true;
	each_edits(set, put_devices, out, &first);
	for (size_t i = 0; i < set->n_injected_devices; i++) {
		const struct jail_cdi_device_node node = { .path = set->injected_devices[i] };
		next(out, &first);
		put_device(out, &node);
	}
	fputs("]\n  },\n  \"devices\": [{\"name\": \"all\", \"containerEdits\": {}}]\n}\n", out);
	if (!fclose(out))
		return text;
	jail_fail(err, "fclose", errno, "not enough memory for the specification of the driver's directory");
	free(text);
	return NULL;
}
