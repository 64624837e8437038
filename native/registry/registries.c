/* SPDX-License-Identifier: Apache-2.0 */
/* Reads registries.conf, which says under which host names a repository is found, and which mirrors it has. session.c
 * calls it. */
#define _GNU_SOURCE
#include "registries.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/report.h"
#include "native/base/text.h"
#include "json.h"
#include "toml.h"

#define MAX_REGISTRIES_FILE (1024 * 1024)

struct registries {
	json_t *entries; /* of [[registry]], each with "\001name" of its file */
};

static int fail_at(struct registry_error *err, const char *name, int line, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static int fail_at(struct registry_error *err, const char *name, int line, const char *format, ...)
{
	char text[600];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	registry_fail(err, REGISTRY_FAULT_CONFIGURATION, "%s:%d: %s", name, line, jail_one_line(text));
	return registry_hint(err, "correct it; containers-registries.conf(5) describes it");
}

struct registries *registries_new(void)
{
	struct registries *registries = calloc(1, sizeof(*registries));

	if (registries)
		registries->entries = json_array();
	return registries;
}

void registries_free(struct registries *registries)
{
	if (!registries)
		return;
	json_decref(registries->entries);
	free(registries);
}

static const char *prefix_of(const json_t *entry)
{
	const char *prefix = json_text(entry, "prefix");

	return *prefix ? prefix : json_text(entry, "location");
}

/* What the keys of a table may be, and of which type. */
struct field {
	const char *key;
	json_type type; /* JSON_TRUE: a boolean */
};

static int check_fields(const json_t *table, const struct field *fields, size_t n, const char *name, struct registry_error *err)
{
	const char *key;
	const json_t *value;
	size_t i;

	json_object_foreach((json_t *)table, key, value) {
		for (i = 0; i < n && strcmp(fields[i].key, key); i++)
			;
		if (*key < ' ')
			continue;
		if (i == n) {
			/* A newer version may know it; here it has no effect. */
			report_warning("%s:%d: \"%.64s\" is not known here", name, toml_line(table), key);
			continue;
		}
		if (fields[i].type == JSON_TRUE ? !json_is_boolean(value) : json_typeof(value) != fields[i].type)
			return fail_at(err, name, toml_line(table), "%s of this entry must be %s", key,
				       fields[i].type == JSON_TRUE ? "true or false" :
				       fields[i].type == JSON_STRING ? "\"TEXT\"" : "[[registry.mirror]] tables");
	}
	return 0;
}

/* HOST[:PORT][/PATH], without a scheme. */
static int check_location(const json_t *table, const char *key, const char *name, struct registry_error *err)
{
	const char *text = json_text(table, key);
	size_t length = strlen(text);

	if (strstr(text, "://"))
		return fail_at(err, name, toml_line(table), "%s \"%.200s\" has a scheme; write HOST[:PORT][/PATH]", key, text);
	scoped_free char *host = text_copy(text, strcspn(text, "/@"));
	bool is_domain = text_starts(host, "*.") && !strcmp(key, "prefix");
	if (length > 500 || (length && !registry_is_host(host + (is_domain ? 2 : 0))))
		return fail_at(err, name, toml_line(table), "%s \"%.200s\" is no HOST[:PORT][/PATH]%s", key, text,
			       strcmp(key, "prefix") ? "" : " or *.DOMAIN");
	if (length && text[length - 1] == '/') {
		scoped_free char *shorter = text_copy(text, length - 1);
		json_object_set_new((json_t *)table, key, json_string(shorter));
	}
	return 0;
}

static int check_mirror(const json_t *entry, const json_t *mirror, const char *name, struct registry_error *err)
{
	static const struct field fields[] = {
		{ "location", JSON_STRING }, { "insecure", JSON_TRUE }, { "pull-from-mirror", JSON_STRING },
	};
	const char *which = json_text(mirror, "pull-from-mirror");

	if (!json_is_object(mirror))
		return fail_at(err, name, toml_line(entry), "mirror must be [[registry.mirror]] tables");
	if (check_fields(mirror, fields, sizeof(fields) / sizeof(fields[0]), name, err) ||
	    check_location(mirror, "location", name, err))
		return -1;
	if (!*json_text(mirror, "location"))
		return fail_at(err, name, toml_line(mirror), "this mirror has no location");
	if (*which && strcmp(which, "all") && strcmp(which, "digest-only") && strcmp(which, "tag-only"))
		return fail_at(err, name, toml_line(mirror),
			       "pull-from-mirror is \"%.64s\"; there are all, digest-only and tag-only", which);
	return 0;
}

static int check_entry(const json_t *entry, const char *name, struct registry_error *err)
{
	static const struct field fields[] = {
		{ "prefix", JSON_STRING }, { "location", JSON_STRING }, { "insecure", JSON_TRUE }, { "blocked", JSON_TRUE },
		{ "mirror-by-digest-only", JSON_TRUE }, { "mirror", JSON_ARRAY },
	};
	const json_t *mirror;
	size_t i;

	if (check_fields(entry, fields, sizeof(fields) / sizeof(fields[0]), name, err) ||
	    check_location(entry, "prefix", name, err) || check_location(entry, "location", name, err))
		return -1;
	if (!*prefix_of(entry))
		return fail_at(err, name, toml_line(entry), "this [[registry]] has neither prefix nor location");
	json_array_foreach(json_object_get(entry, "mirror"), i, mirror)
		if (check_mirror(entry, mirror, name, err))
			return -1;
	return 0;
}

int registries_add(struct registries *registries, const char *text, const char *name, struct registry_error *err)
{
	struct jail_error cause;
	json_t *root = toml_parse(text, &cause);
	json_t *entries = json_object_get(root, "registry"), *entry, *old;
	int result = 0;
	size_t i, j;

	if (!root)
		return fail_at(err, name, cause.line, "%s", cause.message);
	if (json_object_get(root, "registries"))
		result = fail_at(err, name, toml_line(json_object_get(root, "registries")),
				 "[registries.search|insecure|block] is version 1 of this file, which podman and skopeo do not "
				 "read any more; write a [[registry]] with location and insecure or blocked for each");
	else if (entries && !json_is_array(entries))
		result = fail_at(err, name, toml_line(entries), "registry must be [[registry]] tables");
	json_array_foreach(entries, i, entry) {
		if (result)
			break;
		if (!json_is_object(entry)) {
			result = fail_at(err, name, 1, "registry must be [[registry]] tables");
			break;
		}
		result = check_entry(entry, name, err);
		json_object_set_new(entry, "\001name", json_string(name));
		json_array_foreach(registries->entries, j, old)
			if (!strcmp(prefix_of(old), prefix_of(entry))) {
				json_array_remove(registries->entries, j);
				break;
			}
		json_array_append(registries->entries, entry);
	}
	json_decref(root);
	return result;
}

/* A file that is not there says nothing. */
static int add_file(struct registries *registries, const char *path, struct registry_error *err)
{
	struct jail_error cause;
	scoped_free char *text = text_read(AT_FDCWD, path, MAX_REGISTRIES_FILE, NULL, &cause);

	if (text)
		return registries_add(registries, text, path, err);
	return cause.number == ENOENT || cause.number == ENOTDIR ? 0 :
	       registry_fail_jail(err, REGISTRY_FAULT_CONFIGURATION, &cause);
}

static int add_folder(struct registries *registries, const char *folder, struct registry_error *err)
{
	struct dirent **names;
	int n = scandir(folder, &names, NULL, alphasort), result = 0;

	for (int i = 0; i < n; i++) {
		scoped_free char *path = text_format("%s/%s", folder, names[i]->d_name);
		if (!result && text_ends(path, ".conf"))
			result = add_file(registries, path, err);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return result;
}

int registries_load(struct registries *registries, struct registry_error *err)
{
	static const char system[] = "/etc/containers/registries.conf";
	const char *asked = getenv("CONTAINERS_REGISTRIES_CONF"), *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
	scoped_free char *otherwise = text_format("%s/.config", home ? home : "");
	scoped_free char *own = text_format("%s/containers/registries.conf", config && *config ? config : otherwise);
	scoped_free char *own_folder = text_format("%s.d", own);
	const char *path = asked && *asked ? asked : access(own, F_OK) ? system : own;

	if (add_file(registries, path, err) || add_folder(registries, "/etc/containers/registries.conf.d", err))
		return -1;
	return home || config ? add_folder(registries, own_folder, err) : 0;
}

/* How many letters of `name` the prefix stands for; 0: none. */
static size_t matched(const char *prefix, const char *name)
{
	size_t length = strlen(prefix);
	const char *behind = name + length;

	if (text_starts(prefix, "*.")) {
		/* Any host below the domain. */
		const char *domain = strstr(name, prefix + 1), *slash = strchr(name, '/');
		if (!domain || domain == name || (slash && domain > slash))
			return 0;
		behind = domain + length - 1;
	} else if (strncmp(name, prefix, length)) {
		return 0;
	}
	return !*behind || strchr("/:@", *behind) ? (size_t)(behind - name) : 0;
}

/* The place at `location` for an image whose name begins with what the prefix stands for. */
static int add_place(struct registries_answer *answer, const json_t *table, const char *location, const char *rest,
		     bool is_mirror, struct registry_error *err)
{
	struct registries_place *place = &answer->places[answer->n];
	scoped_free char *name = text_format("%s%s", location, rest);
	char *slash = strchr(name, '/');

	if (answer->n == REGISTRIES_MAX_PLACES)
		return 0;
	if (!slash || !registry_is_path(slash + 1) || (size_t)(slash - name) >= sizeof(place->host) || strlen(slash) > sizeof(place->path))
		return registry_fail(err, REGISTRY_FAULT_CONFIGURATION, "registries.conf: \"%.200s\" for this image is no HOST/PATH",
				     name);
	*slash = '\0';
	*place = (struct registries_place){
		.insecure = json_is_true(json_object_get(table, "insecure")), .is_mirror = is_mirror,
	};
	memcpy(place->host, name, strlen(name) + 1);
	memcpy(place->path, slash + 1, strlen(slash + 1) + 1);
	answer->n++;
	return 0;
}

static bool mirror_is_asked(const json_t *entry, const json_t *mirror, bool by_digest)
{
	const char *which = json_text(mirror, "pull-from-mirror");

	if (json_is_true(json_object_get(entry, "mirror-by-digest-only")) || !strcmp(which, "digest-only"))
		return by_digest;
	return strcmp(which, "tag-only") || !by_digest;
}

int registries_find(const struct registries *registries, const struct registry_uri *uri, struct registries_answer *answer,
		    struct registry_error *err)
{
	scoped_free char *bare = text_format("%s/%s", uri->host, uri->path);
	scoped_free char *name = text_format("%s%s%s", bare, uri->digest[0] ? "@" : ":", uri->digest[0] ? uri->digest : uri->tag);
	const json_t *entry, *best = NULL, *mirror;
	size_t longest = 0, length = 0, i;

	*answer = (struct registries_answer){ 0 };
	json_array_foreach(registries->entries, i, entry) {
		size_t here = matched(prefix_of(entry), name);
		if (here && strlen(prefix_of(entry)) > longest) {
			longest = strlen(prefix_of(entry));
			length = here;
			best = entry;
		}
	}
	if (!best)
		return add_place(answer, NULL, bare, "", false, err);
	if (json_is_true(json_object_get(best, "blocked"))) {
		registry_fail(err, REGISTRY_FAULT_CONFIGURATION, "%s: %s:%d blocks \"%s\"", name, json_text(best, "\001name"),
			      toml_line(best), prefix_of(best));
		return registry_hint(err, "take it from another registry, or ask who wrote that file");
	}
	/* A prefix can name a tag; what it leads to has the same one. */
	const char *rest = length < strlen(bare) ? bare + length : "";
	json_array_foreach(json_object_get(best, "mirror"), i, mirror)
		if (answer->n < REGISTRIES_MAX_PLACES - 1 && mirror_is_asked(best, mirror, uri->digest[0]) &&
		    add_place(answer, mirror, json_text(mirror, "location"), rest, true, err))
			return -1;
	if (!*json_text(best, "location"))
		return add_place(answer, best, bare, "", false, err);
	return add_place(answer, best, json_text(best, "location"), rest, false, err);
}
