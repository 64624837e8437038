/* SPDX-License-Identifier: Apache-2.0 */
/* Reads which layers and configuration are in an archive that `docker save` wrote. local_image.c calls it. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/layers/hash.h"
#include "image_config.h"
#include "local_image.h"

static int fail_archive(const struct local_image *source, struct jail_error *err, const char *message, const char *detail)
{
	jail_fail(err, NULL, 0, "%s%.300s", message, detail);
	return jail_error_at(err, NULL, 0, image_files_name(source->files));
}

static bool has_tag(const json_t *image, const char *reference)
{
	const json_t *tags = json_object_get(image, "RepoTags"), *tag;
	size_t i;

	json_array_foreach(tags, i, tag) {
		const char *name = json_string_value(tag);

		/* "debian:12" is also "docker.io/library/debian:12". */
		if (name && (!strcmp(name, reference) ||
			     (strlen(name) > strlen(reference) && text_ends(name, reference) &&
			      name[strlen(name) - strlen(reference) - 1] == '/')))
			return true;
	}
	return false;
}

static const json_t *choose_image(const struct local_image *source, const json_t *images, const char *reference,
				  struct jail_error *err)
{
	struct text_buffer seen = { NULL, 0, 0 };
	const json_t *image, *tag;
	size_t i, j;

	if (!reference && json_array_size(images) == 1)
		return json_array_get(images, 0);
	json_array_foreach(images, i, image) {
		if (reference && has_tag(image, reference)) {
			text_buffer_free(&seen);
			return image;
		}
		json_array_foreach(json_object_get(image, "RepoTags"), j, tag) {
			text_append_string(&seen, seen.length ? ", " : "");
			text_append_string(&seen, json_string_value(tag) ? json_string_value(tag) : "?");
		}
	}
	fail_archive(source, err, reference ? "the archive has no image of that name; there are: "
				    : "there are several images; say which one behind a colon: ", seen.text ? seen.text : "none");
	text_buffer_free(&seen);
	return NULL;
}

static int read_archive_layers(struct local_image *source, const json_t *image, struct jail_error *err)
{
	const json_t *layers = json_object_get(image, "Layers"), *one;
	scoped_config config = { .folder = NULL };
	size_t i, n = json_array_size(layers);

	if (image_config_parse(&config, source->config, source->config_length, image_files_name(source->files), err))
		return -1;
	if (config.diff_ids.n != n)
		return fail_archive(source, err, "its configuration names another number of layers than its manifest.json", "");
	if (n > IMAGE_LAYERS_MOST)
		return fail_archive(source, err, "it has more layers than any image should: ", "1000 are the most");
	local_image_add_layers(source, (unsigned)n);
	json_array_foreach(layers, i, one) {
		struct local_layer *layer = &source->layers[n - 1 - i];
		const char *name = json_string_value(one), *diff_id = config.diff_ids.items[i];

		if (!name || !image_files_has(source->files, name))
			return fail_archive(source, err, "a layer is missing in the archive: ",
					    name ? name : "one without a name");
		layer->file = text_format("%s", name);
		if (text_starts(diff_id, "sha256:") && strlen(diff_id) == 71)
			layer->diff_id = text_format("%s", diff_id + 7);
	}
	return 0;
}

static char *digest_of(const char *text, size_t length)
{
	struct image_hash hash;
	unsigned char sum[32];
	char digits[65];

	if (image_hash_begin(&hash))
		abort();
	image_hash_add(&hash, text, length);
	image_hash_end(&hash, sum);
	image_hash_digits(sum, digits);
	return text_format("sha256:%s", digits);
}

int local_image_read_docker(struct local_image *source, const char *reference, struct jail_error *err)
{
	size_t length;
	json_error_t error;
	scoped_free char *text = image_files_read(source->files, "manifest.json", &length, err);
	json_t *images = text ? json_loadb(text, length, 0, &error) : NULL;
	const json_t *image;
	const char *config, *slash = reference ? strrchr(reference, '/') : NULL;
	/* As everywhere, a name without a tag is that of "latest". */
	bool tagged = reference && strchr(slash ? slash : reference, ':');
	scoped_free char *name = reference ? text_format("%s%s", reference, tagged ? "" : ":latest") : NULL;
	int result = -1;

	if (!text)
		return -1;
	if (!json_is_array(images)) {
		fail_archive(source, err, "its manifest.json is no list of images", "");
	} else if ((image = choose_image(source, images, name, err))) {
		config = json_string_value(json_object_get(image, "Config"));
		source->config = image_files_read(source->files, config ? config : "", &source->config_length, err);
		if (source->config) {
			source->digest = digest_of(source->config, source->config_length);
			result = read_archive_layers(source, image, err);
		}
	}
	json_decref(images);
	return result;
}
