/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a CDI specification, JSON or YAML, into C structs. find.c and spank_jail/driver/driver_files.c call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cdi.h"
#include "native/base/sys.h"
#include "native/base/yaml_tree.h"

static const char *const versions[] = { "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0" };

/* Eight GPUs cut into MIG devices, each by three names, are 200. Keeps the search for doubles short. */
#define MAX_DEVICES 4096

struct source {
	const char *file;
	struct jail_arena *arena;
	struct jail_error *err;
};

/* A key of a map: what reads its value, and where that goes in the object. */
struct field {
	const char *name;
	int (*read)(const struct source *source, const struct jail_yaml_node *node, void *value);
	size_t offset;
};

static int wrong(const struct source *source, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int wrong(const struct source *source, int line, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	jail_fail(source->err, NULL, 0, "%s", text);
	return jail_error_at(source->err, source->file, line, NULL);
}

static const char *label(const struct jail_yaml_node *node)
{
	return node->key ? node->key : "this value";
}

static bool is_null(const struct jail_yaml_node *node)
{
	return node->kind == JAIL_YAML_SCALAR && node->plain &&
	       (!*node->text || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

static void *allocate(const struct source *source, size_t n, size_t size)
{
	void *memory = jail_arena_alloc(source->arena, n * size);

	if (!memory)
		jail_fail(source->err, "malloc", ENOMEM, "not enough memory to read \"%s\"", source->file);
	return memory;
}

static int read_string(const struct source *source, const struct jail_yaml_node *node, void *value)
{
	if (node->kind != JAIL_YAML_SCALAR || is_null(node))
		return wrong(source, node->line, "%s must be a text", label(node));
	*(const char **)value = node->text;
	return 0;
}

static int read_number(const struct source *source, const struct jail_yaml_node *node, void *value)
{
	struct jail_cdi_number *number = value;
	char *end;

	if (node->kind != JAIL_YAML_SCALAR || !node->plain || is_null(node))
		return wrong(source, node->line, "%s must be a number", label(node));
	errno = 0;
	/* Base 0: YAML writes a mode as 0660, JSON as 432. */
	number->value = strtoll(node->text, &end, 0);
	if (errno || *end || number->value < 0 || number->value > 0xffffffffLL)
		return wrong(source, node->line, "%s must be a number from 0 to 4294967295, not \"%.40s\"", label(node),
			     node->text);
	number->given = true;
	return 0;
}

static int read_strings(const struct source *source, const struct jail_yaml_node *node, void *value)
{
	struct jail_cdi_strings *strings = value;

	if (is_null(node))
		return 0;
	if (node->kind != JAIL_YAML_LIST)
		return wrong(source, node->line, "%s must be a list of texts", label(node));
	strings->items = allocate(source, node->n, sizeof(*strings->items));
	if (!strings->items)
		return -1;
	for (const struct jail_yaml_node *item = node->first; item; item = item->next)
		if (read_string(source, item, &strings->items[strings->n++]))
			return -1;
	return 0;
}

/* Allowed, and of no consequence here: annotations, and what only a container runtime can do. */
static int read_nothing(const struct source *source, const struct jail_yaml_node *node, void *value)
{
	(void)source;
	(void)node;
	(void)value;
	return 0;
}

/* The line comes first in every object of a list. */
static int read_map(const struct source *source, const struct jail_yaml_node *node, const struct field *fields,
		    void *object)
{
	if (node->kind != JAIL_YAML_MAP)
		return wrong(source, node->line, "%s must be a map of keys and values", label(node));
	for (const struct jail_yaml_node *value = node->first; value; value = value->next) {
		const struct field *field = fields;
		while (field->name && strcmp(field->name, value->key))
			field++;
		if (!field->name)
			return wrong(source, value->line, "CDI 1.0 has no key \"%.60s\" here", value->key);
		if (field->read(source, value, (char *)object + field->offset))
			return -1;
	}
	return 0;
}

struct list {
	char *items;
	size_t n;
};

static int read_list(const struct source *source, const struct jail_yaml_node *node, const struct field *fields,
		     size_t size, struct list *list)
{
	if (is_null(node))
		return 0;
	if (node->kind != JAIL_YAML_LIST)
		return wrong(source, node->line, "%s must be a list", label(node));
	list->items = allocate(source, node->n, size);
	if (!list->items)
		return -1;
	for (const struct jail_yaml_node *item = node->first; item; item = item->next) {
		char *object = list->items + size * list->n++;
		*(int *)(void *)object = item->line;
		if (read_map(source, item, fields, object))
			return -1;
	}
	return 0;
}

#define LIST_READER(function, type, ...)                                                                       \
	static int function(const struct source *source, const struct jail_yaml_node *node, void *value)       \
	{                                                                                                      \
		static const struct field fields[] = { __VA_ARGS__, { NULL, NULL, 0 } };                       \
		struct list list = { NULL, 0 };                                                                \
		struct { type *items; size_t n; } typed;                                                       \
		if (read_list(source, node, fields, sizeof(type), &list))                                      \
			return -1;                                                                             \
		typed.items = (type *)(void *)list.items;                                                      \
		typed.n = list.n;                                                                              \
		memcpy(value, &typed, sizeof(typed));                                                          \
		return 0;                                                                                      \
	}

LIST_READER(read_device_nodes, struct jail_cdi_device_node,
	    { "path", read_string, offsetof(struct jail_cdi_device_node, path) },
	    { "hostPath", read_string, offsetof(struct jail_cdi_device_node, host_path) },
	    { "type", read_string, offsetof(struct jail_cdi_device_node, type) },
	    { "major", read_number, offsetof(struct jail_cdi_device_node, major) },
	    { "minor", read_number, offsetof(struct jail_cdi_device_node, minor) },
	    { "fileMode", read_number, offsetof(struct jail_cdi_device_node, mode) },
	    { "permissions", read_string, offsetof(struct jail_cdi_device_node, permissions) },
	    { "uid", read_number, offsetof(struct jail_cdi_device_node, uid) },
	    { "gid", read_number, offsetof(struct jail_cdi_device_node, gid) })

LIST_READER(read_mounts, struct jail_cdi_mount,
	    { "hostPath", read_string, offsetof(struct jail_cdi_mount, host_path) },
	    { "containerPath", read_string, offsetof(struct jail_cdi_mount, container_path) },
	    { "type", read_string, offsetof(struct jail_cdi_mount, type) },
	    { "options", read_strings, offsetof(struct jail_cdi_mount, options) })

LIST_READER(read_hooks, struct jail_cdi_hook,
	    { "hookName", read_string, offsetof(struct jail_cdi_hook, name) },
	    { "path", read_string, offsetof(struct jail_cdi_hook, path) },
	    { "args", read_strings, offsetof(struct jail_cdi_hook, arguments) },
	    { "env", read_strings, offsetof(struct jail_cdi_hook, environment) },
	    { "timeout", read_number, offsetof(struct jail_cdi_hook, timeout) })

static int check_absolute(const struct source *source, int line, const char *what, const char *path)
{
	if (!path || path[0] != '/')
		return wrong(source, line, "%s must be given, and be an absolute path", what);
	for (const char *part = strstr(path, "/.."); part; part = strstr(part + 1, "/.."))
		if (part[3] == '/' || !part[3])
			return wrong(source, line, "%s \"%.200s\" must not contain \"..\"", what, path);
	if (strlen(path) >= 1024 || path[strlen(path) - 1] == '/')
		return wrong(source, line, "%s \"%.100s\" must name a file or directory in less than 1024 bytes, "
			     "without a slash at the end", what, path);
	return 0;
}

static int check_node_fields(const struct source *source, struct jail_cdi_device_node *node)
{
	if (!node->host_path)
		node->host_path = node->path;
	if (check_absolute(source, node->line, "path", node->path) ||
	    check_absolute(source, node->line, "hostPath", node->host_path))
		return -1;
	if (strncmp(node->path, "/dev/", 5))
		return wrong(source, node->line, "the device \"%.200s\" must be below /dev", node->path);
	if (node->type && !*node->type)
		node->type = NULL;
	if (node->type && (strlen(node->type) != 1 || !strchr("bcup", *node->type)))
		return wrong(source, node->line, "type must be b, c, u or p, not \"%.20s\"", node->type);
	if (node->mode.given && node->mode.value > 07777)
		return wrong(source, node->line, "fileMode must be permissions only, at most 07777");
	if (node->permissions && strspn(node->permissions, "rwm") != strlen(node->permissions))
		return wrong(source, node->line, "permissions must be made of r, w and m, not \"%.20s\"", node->permissions);
	return 0;
}

static int check_option(const struct source *source, struct jail_cdi_mount *mount, const char *option)
{
	static const struct { const char *name; uint64_t attributes; } known[] = {
		{ "ro", MOUNT_ATTR_RDONLY }, { "nosuid", MOUNT_ATTR_NOSUID }, { "nodev", MOUNT_ATTR_NODEV },
		{ "noexec", MOUNT_ATTR_NOEXEC },
		/* Defaults, and what has no meaning for a private namespace. */
		{ "rw", 0 }, { "suid", 0 }, { "dev", 0 }, { "exec", 0 }, { "bind", 0 }, { "rbind", 0 },
		{ "private", 0 }, { "rprivate", 0 }, { "slave", 0 }, { "rslave", 0 }, { "relatime", 0 },
		{ "noatime", 0 }, { "nodiratime", 0 }, { "strictatime", 0 }, { "defaults", 0 },
	};

	mount->recursive |= !strcmp(option, "rbind");
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].name, option))
			continue;
		mount->attributes |= known[i].attributes;
		return 0;
	}
	return wrong(source, mount->line, "the mount option \"%.60s\" is not known", option);
}

static int check_mount_fields(const struct source *source, struct jail_cdi_mount *mount)
{
	if (check_absolute(source, mount->line, "hostPath", mount->host_path) ||
	    check_absolute(source, mount->line, "containerPath", mount->container_path))
		return -1;
	if (mount->type && *mount->type && strcmp(mount->type, "none") && strcmp(mount->type, "bind"))
		return wrong(source, mount->line, "a mount of type \"%.40s\" is not built; bind mounts are", mount->type);
	for (size_t i = 0; i < mount->options.n; i++)
		if (check_option(source, mount, mount->options.items[i]))
			return -1;
	return 0;
}

static int check_edits(const struct source *source, int line, struct jail_cdi_edits *edits)
{
	for (size_t i = 0; i < edits->device_nodes.n; i++)
		if (check_node_fields(source, &edits->device_nodes.items[i]))
			return -1;
	for (size_t i = 0; i < edits->mounts.n; i++)
		if (check_mount_fields(source, &edits->mounts.items[i]))
			return -1;
	for (size_t i = 0; i < edits->environment.n; i++) {
		const char *equals = strchr(edits->environment.items[i], '=');
		if (!equals || equals == edits->environment.items[i])
			return wrong(source, line, "env must be made of NAME=VALUE, not \"%.60s\"", edits->environment.items[i]);
	}
	return 0;
}

static int read_edits(const struct source *source, const struct jail_yaml_node *node, void *value)
{
	static const struct field fields[] = {
		{ "env", read_strings, offsetof(struct jail_cdi_edits, environment) },
		{ "deviceNodes", read_device_nodes, offsetof(struct jail_cdi_edits, device_nodes) },
		{ "mounts", read_mounts, offsetof(struct jail_cdi_edits, mounts) },
		{ "hooks", read_hooks, offsetof(struct jail_cdi_edits, hooks) },
		{ "additionalGids", read_nothing, 0 },
		{ "intelRdt", read_nothing, 0 },
		{ NULL, NULL, 0 },
	};

	if (is_null(node))
		return 0;
	return read_map(source, node, fields, value) || check_edits(source, node->line, value) ? -1 : 0;
}

LIST_READER(read_devices, struct jail_cdi_device,
	    { "name", read_string, offsetof(struct jail_cdi_device, name) },
	    { "annotations", read_nothing, 0 },
	    { "containerEdits", read_edits, offsetof(struct jail_cdi_device, edits) })

/* First of all: what a later version means by its keys is not ours to guess. */
static int check_version(const struct source *source, const struct jail_yaml_node *root)
{
	const struct jail_yaml_node *node = root->kind == JAIL_YAML_MAP ? root->first : NULL;

	while (node && strcmp(node->key, "cdiVersion"))
		node = node->next;
	if (!node)
		return wrong(source, root->line, "there is no cdiVersion: is this a CDI specification?");
	for (size_t i = 0; node->text && i < sizeof(versions) / sizeof(versions[0]); i++)
		if (!strcmp(versions[i], node->text))
			return 0;
	return wrong(source, node->line, "cdiVersion \"%.20s\" is not known, versions 0.3.0 to 1.0.0 are; write the "
		     "specification anew for one of them", node->text ? node->text : "");
}

static int check_names(const struct source *source, const struct jail_cdi_spec *spec)
{
	char name[400];

	if (!spec->kind)
		return wrong(source, 1, "there is no kind, such as nvidia.com/gpu");
	if (spec->devices.n > MAX_DEVICES)
		return wrong(source, spec->devices.items[0].line, "more than %d devices: is this a CDI specification?",
			     MAX_DEVICES);
	for (size_t i = 0; i < spec->devices.n; i++) {
		const struct jail_cdi_device *device = &spec->devices.items[i];
		snprintf(name, sizeof(name), "%s=%s", spec->kind, device->name ? device->name : "");
		if (strlen(spec->kind) + strlen(device->name ? device->name : "") > 250 ||
		    jail_cdi_name_check(name, source->err))
			return wrong(source, device->line, "kind and name of the device make \"%.200s\", which is no CDI "
				     "name (vendor/class=device)", name);
		for (size_t j = 0; j < i; j++)
			if (!strcmp(spec->devices.items[j].name, device->name))
				return wrong(source, device->line, "the device \"%.100s\" is there twice", device->name);
	}
	return 0;
}

int jail_cdi_spec_parse(const char *text, size_t length, const char *name, struct jail_cdi_spec *spec,
			struct jail_error *err)
{
	static const struct field fields[] = {
		{ "cdiVersion", read_string, offsetof(struct jail_cdi_spec, version) },
		{ "kind", read_string, offsetof(struct jail_cdi_spec, kind) },
		{ "annotations", read_nothing, 0 },
		{ "devices", read_devices, offsetof(struct jail_cdi_spec, devices) },
		{ "containerEdits", read_edits, offsetof(struct jail_cdi_spec, edits) },
		{ NULL, NULL, 0 },
	};
	const struct source source = { name, &spec->arena, err };

	memset(spec, 0, sizeof(*spec));
	const struct jail_yaml_node *root = jail_yaml_parse(text, length, name, &spec->arena, err);
	spec->file = strdup(name);
	if (root && !spec->file)
		jail_fail(err, "strdup", ENOMEM, "not enough memory to read \"%s\"", name);
	else if (root && !check_version(&source, root) && !read_map(&source, root, fields, spec) &&
		 !check_names(&source, spec))
		return 0;
	jail_cdi_spec_free(spec);
	return -1;
}

void jail_cdi_spec_free(struct jail_cdi_spec *spec)
{
	jail_arena_free(&spec->arena);
	free(spec->file);
	memset(spec, 0, sizeof(*spec));
}
