/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the options --container-*, and refuses those that contradict each other. arguments.c, pyxis/slurm and
 * pyxis/step call it. */
#define _GNU_SOURCE
#include "request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "native/base/variables.h"
#include "native/base/scoped.h"

const char *const pyxis_option_names[PYXIS_N_OPTIONS] = {
	[PYXIS_IMAGE] = "container-image", [PYXIS_MOUNTS] = "container-mounts", [PYXIS_WORKDIR] = "container-workdir",
	[PYXIS_NAME] = "container-name", [PYXIS_SAVE] = "container-save",
	[PYXIS_MOUNT_HOME] = "container-mount-home", [PYXIS_NO_MOUNT_HOME] = "no-container-mount-home",
	[PYXIS_REMAP_ROOT] = "container-remap-root", [PYXIS_NO_REMAP_ROOT] = "no-container-remap-root",
	[PYXIS_ENTRYPOINT] = "container-entrypoint", [PYXIS_NO_ENTRYPOINT] = "no-container-entrypoint",
	[PYXIS_ENTRYPOINT_LOG] = "container-entrypoint-log", [PYXIS_WRITABLE] = "container-writable",
	[PYXIS_READONLY] = "container-readonly", [PYXIS_ENV] = "container-env", [PYXIS_UNSHARE] = "container-unshare",
};

const char *const pyxis_option_variables[PYXIS_N_OPTIONS] = {
	[PYXIS_IMAGE] = "PYXIS_CONTAINER_IMAGE", [PYXIS_MOUNTS] = "PYXIS_CONTAINER_MOUNTS",
	[PYXIS_WORKDIR] = "PYXIS_CONTAINER_WORKDIR", [PYXIS_NAME] = "PYXIS_CONTAINER_NAME",
	[PYXIS_SAVE] = "PYXIS_CONTAINER_SAVE", [PYXIS_MOUNT_HOME] = "PYXIS_CONTAINER_MOUNT_HOME",
	[PYXIS_REMAP_ROOT] = "PYXIS_CONTAINER_REMAP_ROOT", [PYXIS_ENTRYPOINT] = "PYXIS_CONTAINER_ENTRYPOINT",
	[PYXIS_ENTRYPOINT_LOG] = "PYXIS_CONTAINER_ENTRYPOINT_LOG", [PYXIS_WRITABLE] = "PYXIS_CONTAINER_WRITABLE",
	[PYXIS_READONLY] = "PYXIS_CONTAINER_READONLY", [PYXIS_ENV] = "PYXIS_CONTAINER_ENV",
	[PYXIS_UNSHARE] = "PYXIS_CONTAINER_UNSHARE",
};

/* slurmstepd reads them, as root, before there is a job to count that against: each mount is compared with all others. No
 * list that was written for a reason comes near. */
#define MAX_VALUE (1024 * 1024)
#define MAX_MOUNTS 1000

static void replace(char **text, char *value)
{
	free(*text);
	*text = value;
}

bool pyxis_image_is_path(const char *image)
{
	return image[0] == '.' || image[0] == '/';
}

const char *pyxis_image_title(const char *image)
{
	return text_starts(image, "docker://") ? image + strlen("docker://") : image;
}

static int take_image(struct pyxis_request *request, const char *value)
{
	bool whole = pyxis_image_is_path(value) || text_starts(value, "docker://") || text_starts(value, "dockerd://");

	replace(&request->image, text_format("%s%s", whole ? "" : "docker://", value));
	return 0;
}

static int take_name(struct pyxis_request *request, const char *value, struct jail_error *err)
{
	static const struct { const char *word; enum pyxis_name_flag flag; } flags[] = {
		{ "auto", PYXIS_AUTO }, { "create", PYXIS_CREATE }, { "exec", PYXIS_EXEC }, { "no_exec", PYXIS_NO_EXEC },
	};
	size_t length = strcspn(value, ":");

	request->name_flag = PYXIS_AUTO;
	if (!length)
		return jail_fail(err, NULL, 0, "the name is empty");
	if (memchr(value, '/', length))
		return jail_fail(err, NULL, 0, "a name holds no \"/\": \"%s\"", value);
	if (value[length]) {
		size_t i = 0;
		while (i < 4 && strcmp(flags[i].word, value + length + 1))
			i++;
		if (i == 4)
			return jail_fail(err, NULL, 0, "unknown flag \"%s\"; known: auto, create, exec, no_exec", value + length + 1);
		request->name_flag = flags[i].flag;
	}
	replace(&request->name, text_copy(value, length));
	return 0;
}

static int take_save(struct pyxis_request *request, const char *value, struct jail_error *err)
{
	if (text_ends(value, "/"))
		return jail_fail(err, NULL, 0, "it takes the path of a file; \"%s\" ends with \"/\"", value);
	replace(&request->save, text_copy(value, strlen(value)));
	return 0;
}

/* Each element of a comma list to `add`. */
static int each(const char *value, struct pyxis_request *request,
		int (*add)(struct pyxis_request *, const char *, struct jail_error *), struct jail_error *err)
{
	scoped_free char *copy = text_copy(value, strlen(value));
	char *rest = copy, *element;

	while ((element = strsep(&rest, ",")))
		if (add(request, element, err))
			return -1;
	return 0;
}

static int take_mount(struct pyxis_request *request, const char *mount, struct jail_error *err)
{
	char *source;
	char *line = pyxis_mount_line(mount, &source, err);

	if (!line)
		return -1;
	for (size_t i = 0; i < request->mounts.n; i++)
		if (!strcmp(request->mounts.items[i], line)) {
			free(line);
			free(source);
			return 0;
		}
	if (request->mounts.n == MAX_MOUNTS) {
		free(line);
		free(source);
		return jail_fail(err, NULL, 0, "more than %d mounts; mount a directory above them", MAX_MOUNTS);
	}
	text_list_take(&request->mounts, line);
	if (source)
		text_list_take(&request->sources, source);
	return 0;
}

static int take_variable(struct pyxis_request *request, const char *name, struct jail_error *err)
{
	if (!*name)
		return jail_fail(err, NULL, 0, "a name is empty; it takes NAME[,NAME...]");
	if (strchr(name, '='))
		return jail_fail(err, NULL, 0, "it takes names; \"%s\" sets a value. Export it before, and list its name", name);
	text_list_add(&request->environment, name);
	return 0;
}

static int take_namespace(struct pyxis_request *request, const char *name, struct jail_error *err)
{
	static const char *const names[] = { "net", "ipc", "uts" };

	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(name, names[i])) {
			request->unshare |= 1U << i;
			return 0;
		}
	return jail_fail(err, NULL, 0, "unknown namespace '%s'", name);
}

static int set_option(struct pyxis_request *request, enum pyxis_option option, const char *value, struct jail_error *err)
{
	switch (option) {
	case PYXIS_IMAGE: return take_image(request, value);
	case PYXIS_WORKDIR: replace(&request->workdir, text_copy(value, strlen(value))); return 0;
	case PYXIS_NAME: return take_name(request, value, err);
	case PYXIS_SAVE: return take_save(request, value, err);
	case PYXIS_MOUNTS:
		text_list_free(&request->mounts);
		text_list_free(&request->sources);
		return each(value, request, take_mount, err);
	case PYXIS_ENV:
		text_list_free(&request->environment);
		return each(value, request, take_variable, err);
	case PYXIS_UNSHARE:
		request->unshare = 0;
		return each(value, request, take_namespace, err);
	case PYXIS_MOUNT_HOME: request->mount_home = PYXIS_YES; return 0;
	case PYXIS_NO_MOUNT_HOME: request->mount_home = PYXIS_NO; return 0;
	case PYXIS_REMAP_ROOT: request->remap_root = PYXIS_YES; return 0;
	case PYXIS_NO_REMAP_ROOT: request->remap_root = PYXIS_NO; return 0;
	case PYXIS_ENTRYPOINT: request->entrypoint = PYXIS_YES; return 0;
	case PYXIS_NO_ENTRYPOINT: request->entrypoint = PYXIS_NO; return 0;
	case PYXIS_ENTRYPOINT_LOG: request->entrypoint_log = PYXIS_YES; return 0;
	case PYXIS_WRITABLE: request->writable = PYXIS_YES; return 0;
	case PYXIS_READONLY: request->writable = PYXIS_NO; return 0;
	default: return jail_fail(err, NULL, 0, "unknown option");
	}
}

static bool has_value(enum pyxis_option option)
{
	return option <= PYXIS_SAVE || option >= PYXIS_ENV;
}

int pyxis_request_take(struct pyxis_request *request, enum pyxis_option option, const char *value, struct jail_error *err)
{
	scoped_free char *origin = text_format("--%s", pyxis_option_names[option]);

	if (has_value(option) && (!value || !*value))
		jail_fail(err, NULL, 0, "the value is empty");
	else if (has_value(option) && strlen(value) > MAX_VALUE)
		jail_fail(err, NULL, 0, "the value is longer than a MiB");
	else if (!set_option(request, option, value, err))
		return 0;
	return jail_error_at(err, origin, 0, NULL);
}

int pyxis_switch_parse(const char *value, enum pyxis_switch *on)
{
	static const char *const words[] = { "0", "false", "no", "n", "1", "true", "yes", "y" };

	for (size_t i = 0; i < 8; i++)
		if (!strcasecmp(value, words[i])) {
			*on = i < 4 ? PYXIS_NO : PYXIS_YES;
			return 0;
		}
	return -1;
}

static int take_word(struct pyxis_request *request, enum pyxis_option option, const char *value, struct jail_error *err)
{
	enum pyxis_switch on;

	if (pyxis_switch_parse(value, &on))
		return jail_fail(err, NULL, 0, "it is 1, true, yes, y, 0, false, no or n, not \"%s\"", value);
	switch (option) {
	case PYXIS_MOUNT_HOME: request->mount_home = on; break;
	case PYXIS_REMAP_ROOT: request->remap_root = on; break;
	case PYXIS_ENTRYPOINT: request->entrypoint = on; break;
	case PYXIS_ENTRYPOINT_LOG: request->entrypoint_log = on; break;
	case PYXIS_WRITABLE: request->writable = on; break;
	/* "Not read-only" asks for what is writable. It is the later of the two: no option says both. */
	default:
		if (request->writable == on)
			return jail_fail(err, NULL, 0, "%s is set, too, and they contradict each other",
					 pyxis_option_variables[PYXIS_WRITABLE]);
		request->writable = on == PYXIS_YES ? PYXIS_NO : PYXIS_YES;
		break;
	}
	return 0;
}

int pyxis_request_take_variable(struct pyxis_request *request, enum pyxis_option option, const char *value,
				struct jail_error *err)
{
	int result = !*value ? jail_fail(err, NULL, 0, "the value is empty")
		     : strlen(value) > MAX_VALUE ? jail_fail(err, NULL, 0, "the value is longer than a MiB")
		     : has_value(option) ? set_option(request, option, value, err) : take_word(request, option, value, err);

	return result ? jail_error_at(err, pyxis_option_variables[option], 0, NULL) : 0;
}

bool pyxis_request_gives(const struct pyxis_request *request, enum pyxis_option option)
{
	switch (option) {
	case PYXIS_IMAGE: return request->image;
	case PYXIS_MOUNTS: return request->mounts.n;
	case PYXIS_WORKDIR: return request->workdir;
	case PYXIS_NAME: return request->name;
	case PYXIS_SAVE: return request->save;
	case PYXIS_MOUNT_HOME: return request->mount_home == PYXIS_YES;
	case PYXIS_NO_MOUNT_HOME: return request->mount_home == PYXIS_NO;
	case PYXIS_REMAP_ROOT: return request->remap_root == PYXIS_YES;
	case PYXIS_NO_REMAP_ROOT: return request->remap_root == PYXIS_NO;
	case PYXIS_ENTRYPOINT: return request->entrypoint == PYXIS_YES;
	case PYXIS_NO_ENTRYPOINT: return request->entrypoint == PYXIS_NO;
	case PYXIS_ENTRYPOINT_LOG: return request->entrypoint_log == PYXIS_YES;
	case PYXIS_WRITABLE: return request->writable == PYXIS_YES;
	case PYXIS_READONLY: return request->writable == PYXIS_NO;
	case PYXIS_ENV: return request->environment.n;
	case PYXIS_UNSHARE: return request->unshare;
	default: return false;
	}
}

void pyxis_request_free(struct pyxis_request *request)
{
	free(request->image);
	free(request->workdir);
	free(request->name);
	free(request->save);
	text_list_free(&request->mounts);
	text_list_free(&request->sources);
	text_list_free(&request->environment);
	*request = (struct pyxis_request){ 0 };
}

char *pyxis_container_named(const char *name, unsigned job)
{
	return job ? text_format("pyxis_%u_%s", job, name) : text_format("pyxis_%s", name);
}

char *pyxis_container_unnamed(unsigned job, unsigned step)
{
	return text_format("pyxis_%u.%u", job, step);
}

char *pyxis_container_pattern(unsigned job, bool job_scope)
{
	/* In the global scope pyxis_7_x is what a user called 7_x, and kept. */
	return text_format(job_scope ? "pyxis_%u[._]*" : "pyxis_%u.*", job);
}
