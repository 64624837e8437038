/* SPDX-License-Identifier: Apache-2.0 */
/* Parses manifests, image indexes and configurations of images. session.c and enroot/importing call it. */
#define _GNU_SOURCE
#include "manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/layers/hash.h"
#include "native/base/report.h"
#include "json.h"

#define MAX_LAYERS 4096

bool manifest_is_digest(const char *digest)
{
	return text_starts(digest, "sha256:") && strlen(digest) == 71 && strspn(digest + 7, "0123456789abcdef") == 64;
}

void manifest_digest(const char *text, size_t length, char digest[72])
{
	struct image_hash hash;
	unsigned char bytes[32] = { 0 };

	strcpy(digest, "sha256:");
	if (!image_hash_begin(&hash)) {
		image_hash_add(&hash, text, length);
		image_hash_end(&hash, bytes);
	}
	image_hash_digits(bytes, digest + 7);
}

static int not_an_image(const char *name, const char *why, struct registry_error *err)
{
	registry_fail(err, REGISTRY_FAULT_IMAGE, "%s: its manifest is none of a container image: %s", name, why);
	jail_one_line(err->message);
	return registry_hint(err, "check the name; what is there can be seen with `skopeo inspect --raw`");
}

static json_t *load(const char *text, size_t length, const char *name, struct registry_error *err)
{
	json_error_t cause;
	json_t *json = json_loadb(text, length, JSON_REJECT_DUPLICATES, &cause);

	if (json_is_object(json))
		return json;
	not_an_image(name, json ? "it is no JSON object" : cause.text, err);
	json_decref(json);
	return NULL;
}

/* os/architecture/variant of an entry, for a person. */
static void describe_platform(const json_t *platform, char text[120])
{
	const char *os = json_text(platform, "os"), *variant = json_text(platform, "variant");

	snprintf(text, 120, "%.32s/%.40s%s%.32s", *os ? os : "?", *json_text(platform, "architecture") ?
		 json_text(platform, "architecture") : "?", *variant ? "/" : "", variant);
	jail_one_line(text);
}

static int absent(const json_t *entries, const char *name, const struct platform *platform, struct registry_error *err)
{
	scoped_buffer there = { 0 };
	scoped_list seen = { 0 };
	const json_t *entry;
	size_t i, j;

	json_array_foreach((json_t *)entries, i, entry) {
		char text[120];
		const json_t *each = json_object_get(entry, "platform");
		describe_platform(each, text);
		for (j = 0; j < seen.n && strcmp(seen.items[j], text); j++)
			;
		/* "unknown" are attestations of BuildKit. */
		if (text_starts(json_text(each, "os"), "unknown") || j < seen.n || there.length > 800)
			continue;
		text_list_add(&seen, text);
		if (there.length)
			text_append_string(&there, ", ");
		text_append_string(&there, text);
	}
	registry_fail(err, REGISTRY_FAULT_PLATFORM, "%s: it is not there for linux/%s%s%s; there %s", name,
		      platform->architecture, platform->variant[0] ? "/" : "", platform->variant,
		      there.length ? "are:" : "is nothing in its index");
	if (there.length)
		snprintf(err->message + strlen(err->message), sizeof(err->message) - strlen(err->message), " %s", there.text);
	return registry_hint(err, "choose another tag, or import one of these: enroot import -a ARCH");
}

bool manifest_is_single(const char *media_type)
{
	return strstr(media_type, "image.manifest.v1+json") || strstr(media_type, "distribution.manifest.v2+json");
}

bool manifest_is_configuration(const char *media_type)
{
	return !*media_type || strstr(media_type, "image.config.v1") || strstr(media_type, "container.image.v1") ||
	       !strcmp(media_type, "application/octet-stream");
}

static bool is_index(const json_t *json, const char *media_type)
{
	const char *own = json_text(json, "mediaType");
	const char *type = *own ? own : media_type;

	return strstr(type, "image.index.v1") || strstr(type, "manifest.list.v2") ||
	       (json_is_array(json_object_get(json, "manifests")) && !json_object_get(json, "layers"));
}

int manifest_choose(const char *text, size_t length, const char *name, const char *media_type,
		    const struct platform *platform, char digest[72], struct registry_error *err)
{
	scoped_json *json = load(text, length, name, err);
	const json_t *entries, *entry, *best = NULL;
	int best_fit = 0;
	size_t i;

	if (!json)
		return -1;
	if (!is_index(json, media_type))
		return 0;
	entries = json_object_get(json, "manifests");
	if (!json_is_array(entries))
		return not_an_image(name, "an index without manifests", err);
	json_array_foreach((json_t *)entries, i, entry) {
		const json_t *each = json_object_get(entry, "platform");
		/* Without a platform it can be any: taken where nothing else is there. */
		int fit = json_is_object(each) ? platform_fit(platform, json_text(each, "os"), json_text(each, "architecture"),
							      json_text(each, "variant")) :
			  *json_text(entry, "artifactType") ? 0 : 1;
		if (fit > best_fit) {
			best_fit = fit;
			best = entry;
		}
	}
	if (!best)
		return absent(entries, name, platform, err);
	if (!manifest_is_digest(json_text(best, "digest")))
		return not_an_image(name, "an entry of its index has no sha256 digest", err);
	strcpy(digest, json_text(best, "digest"));
	return 1;
}

/* Addresses of a layer that registries need not have (image-spec 1.1, descriptor.md), one a line. */
static char *addresses(const json_t *urls)
{
	scoped_buffer lines = { 0 };
	const json_t *each;
	size_t i;

	json_array_foreach((json_t *)urls, i, each) {
		const char *url = json_string_value(each);
		if (!url || strlen(url) > 4096 || strpbrk(url, "\r\n") || i >= 16)
			continue;
		text_append_string(&lines, url);
		text_append(&lines, "\n", 1);
	}
	return text_copy(lines.text ? lines.text : "", lines.length);
}

static int read_layer(struct registry_layer *layer, const json_t *entry, unsigned number, const char *name,
		      struct registry_error *err)
{
	const json_t *size = json_object_get(entry, "size");
	char why[300];

	if (!manifest_is_digest(json_text(entry, "digest")) || !json_is_integer(size) || json_integer_value(size) < 0) {
		snprintf(why, sizeof(why), "layer %u has no sha256 digest or no size", number);
		return not_an_image(name, why, err);
	}
	strcpy(layer->digest, json_text(entry, "digest"));
	layer->size = (unsigned long long)json_integer_value(size);
	snprintf(layer->media_type, sizeof(layer->media_type), "%s", json_text(entry, "mediaType"));
	layer->urls = addresses(json_object_get(entry, "urls"));
	if (strstr(layer->media_type, "encrypted")) {
		registry_fail(err, REGISTRY_FAULT_IMAGE, "%s: layer %u is encrypted", name, number);
		return registry_hint(err, "decrypt a copy of it: skopeo copy --decryption-key");
	}
	/* Compression is seen in the layer itself; here it counts that it is a tar at all. */
	if (!strstr(layer->media_type, "tar")) {
		snprintf(why, sizeof(why), "layer %u is \"%.100s\"", number, layer->media_type);
		return not_an_image(name, why, err);
	}
	return 0;
}

void manifest_free_layers(struct registry_image *image)
{
	for (unsigned i = 0; image->layers && i < image->n_layers; i++)
		free(image->layers[i].urls);
	free(image->layers);
}

int manifest_read(struct registry_image *image, const char *name, struct registry_error *err)
{
	scoped_json *json = load(image->manifest, image->manifest_length, name, err);
	const json_t *layers = json_object_get(json, "layers"), *config = json_object_get(json, "config");
	const char *type = json_text(json, "mediaType"), *config_type = json_text(config, "mediaType");
	size_t n = json_array_size(layers);
	char why[300];

	if (!json)
		return -1;
	if (json_integer_value(json_object_get(json, "schemaVersion")) == 1 || json_object_get(json, "fsLayers")) {
		registry_fail(err, REGISTRY_FAULT_IMAGE, "%s: it is in Docker's format of before 2016 (schema 1), which no "
			      "current tool reads", name);
		return registry_hint(err, "push it again with a current docker, podman or skopeo");
	}
	if (*type)
		snprintf(image->media_type, sizeof(image->media_type), "%s", type);
	if (!json_is_array(layers) || !json_is_object(config) || n > MAX_LAYERS)
		return not_an_image(name, n > MAX_LAYERS ? "it has too many layers" : "it has no layers or no configuration",
				    err);
	if (!manifest_is_configuration(config_type)) {
		snprintf(why, sizeof(why), "its configuration is \"%.200s\"", config_type);
		return not_an_image(name, why, err);
	}
	if (!manifest_is_digest(json_text(config, "digest")))
		return not_an_image(name, "its configuration has no sha256 digest", err);
	strcpy(image->config_digest, json_text(config, "digest"));
	image->layers = calloc(n ? n : 1, sizeof(*image->layers));
	if (!image->layers)
		return registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory");
	image->n_layers = (unsigned)n;
	for (unsigned i = 0; i < n; i++) {
		struct registry_layer *layer = &image->layers[n - 1 - i];
		if (read_layer(layer, json_array_get(layers, i), i, name, err))
			return -1;
		image->size += layer->size;
	}
	return 0;
}

int manifest_read_config(struct registry_image *image, const char *name, const struct platform *platform,
			 struct registry_error *err)
{
	scoped_json *json = load(image->config, image->config_length, name, err);
	const json_t *ids = json_object_get(json_object_get(json, "rootfs"), "diff_ids");
	char why[300], made_for[120];

	if (!json)
		return -1;
	if (json_array_size(ids) != image->n_layers || !json_is_array(ids)) {
		snprintf(why, sizeof(why), "it has %u layers, and its configuration %zu", image->n_layers, json_array_size(ids));
		return not_an_image(name, why, err);
	}
	for (unsigned i = 0; i < image->n_layers; i++) {
		const char *id = json_string_value(json_array_get(ids, i));
		if (!id || !manifest_is_digest(id))
			return not_an_image(name, "a diff_id is no sha256 digest", err);
		strcpy(image->layers[image->n_layers - 1 - i].diff_id, id);
	}
	describe_platform(json, made_for);
	if (!*json_text(json, "architecture") ||
	    platform_fit(platform, json_text(json, "os"), json_text(json, "architecture"), json_text(json, "variant")))
		return 0;
	if (platform->asked || (*json_text(json, "os") && strcmp(json_text(json, "os"), "linux"))) {
		registry_fail(err, REGISTRY_FAULT_PLATFORM, "%s: it is not there for linux/%s; there is only: %s", name,
			      platform->architecture, made_for);
		return registry_hint(err, "leave -a out to have it all the same, or choose another tag");
	}
	report_warning("%s: it is made for %s, not for this machine (linux/%s)", name, made_for, platform->architecture);
	return 0;
}
