/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the manifest and list of layers of an OCI layout or archive. local_image.c calls it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/layers/hash.h"
#include "native/registry/json.h"
#include "native/registry/manifest.h"
#include "native/registry/platform.h"
#include "image_config.h"
#include "local_image.h"

/* An index may name indexes; more is a circle. */
#define DEPTH_MOST 4
#define REFERENCE "org.opencontainers.image.ref.name"
/* What docker and containerd write, with the name of the repository before the tag. */
#define IMAGE_NAME "io.containerd.image.name"

struct layout {
	struct local_image *source;
	const char *reference;
	struct platform platform;
	struct jail_error *err;
	struct text_buffer seen; /* what there is, for the message */
};

static int fail_layout(const struct layout *layout, const char *format, const char *detail)
{
	scoped_free char *text = text_format("%.300s", detail);
	char message[512];

	snprintf(message, sizeof(message), "%s%s", format, text);
	jail_fail(layout->err, NULL, 0, "%s", message);
	return jail_error_at(layout->err, NULL, 0, image_files_name(layout->source->files));
}

/* "sha256:" and 64 digits in lower case: the digits; else NULL. */
static const char *digits_of(const char *digest)
{
	if (!digest || !text_starts(digest, "sha256:") || strlen(digest) != 71 ||
	    strspn(digest + 7, "0123456789abcdef") != 64)
		return NULL;
	return digest + 7;
}

/* A JSON document by its digest, which is compared. */
static json_t *read_blob(const struct layout *layout, const json_t *descriptor, char **text, size_t *length)
{
	const char *digest = json_string_value(json_object_get(descriptor, "digest")), *digits = digits_of(digest);
	struct image_hash hash;
	unsigned char sum[32];
	char found[65];
	json_error_t error;

	*text = NULL;
	if (!digits) {
		fail_layout(layout, "a descriptor has no digest sha256:...: ", digest ? digest : "none");
		return NULL;
	}
	scoped_free char *name = text_format("blobs/sha256/%s", digits);
	*text = image_files_read(layout->source->files, name, length, layout->err);
	if (!*text)
		return NULL;
	if (image_hash_begin(&hash))
		abort();
	image_hash_add(&hash, *text, *length);
	image_hash_end(&hash, sum);
	image_hash_digits(sum, found);
	json_t *json = strcmp(found, digits) ? NULL : json_loadb(*text, *length, 0, &error);
	if (!json)
		fail_layout(layout, strcmp(found, digits) ? "damaged, its digest is another one: " : "no JSON: ", name);
	return json;
}

static bool has_reference(const json_t *descriptor, const char *reference)
{
	const json_t *annotations = json_object_get(descriptor, "annotations");
	const char *name = json_string_value(json_object_get(annotations, REFERENCE)),
		   *image = json_string_value(json_object_get(annotations, IMAGE_NAME));

	return (name && !strcmp(name, reference)) || (image && !strcmp(image, reference));
}

static void note(struct layout *layout, const char *what)
{
	if (layout->seen.length > 200 || !what)
		return;
	text_append_string(&layout->seen, layout->seen.length ? ", " : "");
	text_append_string(&layout->seen, what);
}

static const char *reference_of(const json_t *descriptor)
{
	return json_string_value(json_object_get(json_object_get(descriptor, "annotations"), REFERENCE));
}

/* How well the image fits; 0: not at all. */
static int fit_descriptor(struct layout *layout, const json_t *descriptor, const char *reference)
{
	const json_t *platform = json_object_get(descriptor, "platform");
	const char *architecture = json_text(platform, "architecture");
	/* A layout of one image often does not say what it is for: its configuration does. */
	int fits = platform ? platform_fit(&layout->platform, json_text(platform, "os"), architecture,
					   json_text(platform, "variant"))
		   /* A signature, a list of contents: what tools put beside an image. */
		   : reference || !*json_text(descriptor, "artifactType");

	if (reference && !has_reference(descriptor, reference)) {
		note(layout, reference_of(descriptor));
		return 0;
	}
	if (!fits)
		note(layout, architecture);
	return fits;
}

/* Whether both are as good as each other, and neither was asked for: in an index, images of one platform are variants of one
 * image; in the layout's own, they are images. */
static bool is_unclear(const json_t *one, const json_t *chosen, bool top, bool as_good)
{
	return (!json_object_get(one, "platform") || (top && as_good)) &&
	       strcmp(json_text(one, "digest"), json_text(chosen, "digest"));
}

/* The descriptor that is meant. NULL: there is none of that name or platform; or it is not clear which. `top`: of the layout's
 * own index. */
static json_t *choose_descriptor(struct layout *layout, const json_t *manifests, bool top)
{
	const char *reference = top ? layout->reference : NULL;
	json_t *one, *chosen = NULL;
	int best = 0;
	size_t i;

	json_array_foreach(manifests, i, one) {
		int fits = fit_descriptor(layout, one, reference);

		if (fits && chosen && !reference && is_unclear(one, chosen, top, fits == best)) {
			note(layout, reference_of(chosen));
			note(layout, reference_of(one));
			fail_layout(layout, "there are several images; say which one behind a colon: ",
				    layout->seen.text ? layout->seen.text : "");
			return NULL;
		}
		if (fits <= best)
			continue;
		best = fits;
		chosen = one;
	}
	if (chosen)
		return chosen;
	scoped_free char *wanted = text_format("no image%s%s for linux/%s; there are: ", reference ? " " : "",
					       reference ? reference : "", layout->platform.architecture);
	fail_layout(layout, wanted, layout->seen.text ? layout->seen.text : "none");
	return NULL;
}

static int read_layout_layers(struct layout *layout, const json_t *manifest)
{
	struct local_image *source = layout->source;
	const json_t *layers = json_object_get(manifest, "layers"), *one;
	scoped_config config = { .folder = NULL };
	size_t i, n = json_array_size(layers);

	if (image_config_parse(&config, source->config, source->config_length, image_files_name(source->files), layout->err))
		return -1;
	if (config.diff_ids.n && config.diff_ids.n != n)
		return fail_layout(layout, "its configuration names another number of layers than its manifest", "");
	if (n > IMAGE_LAYERS_MOST)
		return fail_layout(layout, "it has more layers than any image should: ", "1000 are the most");
	local_image_add_layers(source, (unsigned)n);
	json_array_foreach(layers, i, one) {
		struct local_layer *layer = &source->layers[n - 1 - i];
		const char *digest = json_string_value(json_object_get(one, "digest")), *digits = digits_of(digest);
		const char *media = json_string_value(json_object_get(one, "mediaType"));

		if (!digits)
			return fail_layout(layout, "a layer has no digest sha256:...: ", digest ? digest : "none");
		if (media && strstr(media, "encrypted"))
			return fail_layout(layout, "a layer is encrypted: ", digest);
		layer->file = text_format("blobs/sha256/%s", digits);
		layer->digest = text_format("%s", digits);
		layer->size = (unsigned long long)json_integer_value(json_object_get(one, "size"));
	}
	return 0;
}

static int read_manifest(struct layout *layout, json_t *descriptor, int depth)
{
	size_t length;
	scoped_free char *text = NULL;
	scoped_json *json = read_blob(layout, descriptor, &text, &length);
	json_t *config;

	if (!json)
		return -1;
	if (json_is_array(json_object_get(json, "manifests"))) {
		json_t *next = depth ? choose_descriptor(layout, json_object_get(json, "manifests"), false) : NULL;

		return next ? read_manifest(layout, next, depth - 1)
		       : depth ? -1 : fail_layout(layout, "its indexes name each other", "");
	}
	layout->source->digest = text_format("%s", json_string_value(json_object_get(descriptor, "digest")));
	const char *type = json_text(json_object_get(json, "config"), "mediaType");
	if (!manifest_is_configuration(type))
		return fail_layout(layout, "its manifest is none of a container image: its configuration is ", type);
	config = read_blob(layout, json_object_get(json, "config"), &layout->source->config, &layout->source->config_length);
	if (!config)
		return -1;
	json_decref(config);
	if (!json_is_array(json_object_get(json, "layers")))
		return fail_layout(layout, "its manifest names no layers: it is no image", "");
	return read_layout_layers(layout, json);
}

int local_image_read_oci(struct local_image *source, const char *reference, const char *architecture, struct jail_error *err)
{
	struct layout layout = { .source = source, .reference = reference, .err = err };
	size_t length;
	json_error_t error;
	scoped_free char *text = image_files_read(source->files, "index.json", &length, err);
	scoped_json *index = text ? json_loadb(text, length, 0, &error) : NULL;
	int result = -1;

	if (!text)
		return -1;
	if (platform_of(&layout.platform, architecture)) {
		fail_layout(&layout, "there is no such architecture: ", architecture);
	} else if (!json_is_array(json_object_get(index, "manifests"))) {
		fail_layout(&layout, "its index.json is no index of images", "");
	} else {
		json_t *chosen = choose_descriptor(&layout, json_object_get(index, "manifests"), true);

		result = chosen ? read_manifest(&layout, chosen, DEPTH_MOST) : -1;
	}
	text_buffer_free(&layout.seen);
	return result;
}
