/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the configuration of an image: entrypoint, command, environment, volumes, working directory.
 * import_source.c, docker_archive.c and oci_layout.c call it. */
#define _GNU_SOURCE
#include "image_config.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int wrong_type(const char *key, const char *expected, struct jail_error *err)
{
	return jail_fail(err, NULL, 0, "its configuration is no image's: \"%s\" is not %s", key, expected);
}

static int strings(struct text_list *list, const json_t *object, const char *key, struct jail_error *err)
{
	const json_t *array = json_object_get(object, key), *value;
	size_t i;

	if (!array || json_is_null(array))
		return 0;
	/* docker once wrote a single command as a string. */
	if (json_is_string(array)) {
		text_list_add(list, json_string_value(array));
		return 0;
	}
	if (!json_is_array(array))
		return wrong_type(key, "a list of strings", err);
	json_array_foreach(array, i, value) {
		if (!json_is_string(value))
			return wrong_type(key, "a list of strings", err);
		text_list_add(list, json_string_value(value));
	}
	return 0;
}

/* The keys of an object, with their values where these are strings. */
static int keys(struct text_list *list, json_t *object, const char *key, struct jail_error *err)
{
	json_t *map = json_object_get(object, key);

	if (!map || json_is_null(map))
		return 0;
	if (!json_is_object(map))
		return wrong_type(key, "an object", err);
	for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
		const char *name = json_object_iter_key(at), *value = json_string_value(json_object_iter_value(at));

		text_list_take(list, value ? text_format("%s=%s", name, value) : text_format("%s", name));
	}
	text_list_sort(list);
	return 0;
}

static char *string(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));

	return value && *value ? text_format("%s", value) : NULL;
}

static int64_t time_of(const char *text)
{
	struct tm tm = { .tm_isdst = 0 };

	return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : 0;
}

int image_config_parse(struct image_config *config, const char *json, size_t length, const char *name,
		       struct jail_error *err)
{
	json_error_t error;
	json_t *root = json_loadb(json, length, 0, &error), *inner, *rootfs;
	int result = -1;

	*config = (struct image_config){ .folder = NULL };
	inner = json_object_get(root, "config");
	rootfs = json_object_get(root, "rootfs");
	if (!json_is_object(root))
		jail_fail(err, NULL, 0, "its configuration is no JSON object (line %d: %.100s)", error.line, error.text);
	else if (!strings(&config->environment, inner, "Env", err) && !strings(&config->entrypoint, inner, "Entrypoint", err) &&
		 !strings(&config->command, inner, "Cmd", err) && !strings(&config->diff_ids, rootfs, "diff_ids", err) &&
		 !keys(&config->labels, inner, "Labels", err) && !keys(&config->volumes, inner, "Volumes", err))
		result = 0;
	config->folder = string(inner, "WorkingDir");
	config->architecture = string(root, "architecture");
	config->os = string(root, "os");
	/* Words for people, and these may be anything. */
	if (config->architecture)
		jail_one_line(config->architecture);
	if (config->os)
		jail_one_line(config->os);
	config->created = time_of(json_string_value(json_object_get(root, "created")));
	json_decref(root);
	return result ? jail_error_at(err, NULL, 0, name) : 0;
}

void image_config_free(struct image_config *config)
{
	text_list_free(&config->environment);
	text_list_free(&config->entrypoint);
	text_list_free(&config->command);
	text_list_free(&config->labels);
	text_list_free(&config->volumes);
	text_list_free(&config->diff_ids);
	free(config->folder);
	free(config->architecture);
	free(config->os);
	*config = (struct image_config){ .folder = NULL };
}
