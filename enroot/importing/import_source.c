/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the image that an import names, in a registry or on this machine, and prints errors to the user. load.c and
 * cached_image.c call it. */
#define _GNU_SOURCE
#include "import_source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/registry/platform.h"
#include "native/base/report.h"

char *import_source_name(const char *uri)
{
	struct registry_uri parsed;
	struct registry_error refused;
	char name[512];

	if (local_image_is_local(uri))
		return local_image_name(uri);
	if (!text_starts(uri, "docker://")) {
		report_error("%s: no image can be imported from there; there are docker://IMAGE, dockerd://IMAGE, podman://IMAGE, oci:DIR, "
			     "oci-archive:FILE and docker-archive:FILE", uri);
		return NULL;
	}
	if (registry_uri_parse(&parsed, uri, &refused)) {
		registry_report(&refused);
		return NULL;
	}
	registry_uri_file(&parsed, name);
	size_t length = strlen(name), suffix = text_ends(name, ".sqsh") ? strlen(".sqsh") : 0;
	return text_copy(name, length - suffix);
}

static bool local_image_failed(void *context)
{
	const struct import_source *import = context;

	if (import->source.failed)
		report_failure(&import->source.failure);
	return import->source.failed;
}

static bool registry_failed(void *context)
{
	struct import_source *import = context;
	struct registry_error why;

	if (!registry_failure(import->registry, &why))
		return layer_cache_use_failed(&import->kept);
	registry_report(&why);
	return true;
}

static int open_layer(void *context, unsigned layer)
{
	struct import_source *import = context;

	if (!import->registry)
		return local_image_open_layer(&import->source, layer);
	int fd = layer_cache_use_open(&import->kept, layer);
	return fd >= 0 ? fd : registry_layer_open(import->registry, layer);
}

int import_source_open(struct import_source *import, const char *uri, const char *architecture, const struct settings *settings,
		       const struct registry_documents *documents)
{
	struct registry_error refused;

	*import = (struct import_source){ .uri = uri, .settings = settings, .architecture = architecture };
	if (local_image_is_local(uri))
		return 0;
	if (!registry_uri_parse(&import->parsed, uri, &refused))
		import->registry = registry_open(settings, &import->parsed, architecture, documents, &refused);
	if (import->registry)
		return 0;
	registry_report(&refused);
	return -1;
}

int import_source_digest(struct import_source *import, char digest[72])
{
	struct registry_error refused;

	if (!import->registry)
		return 1;
	if (!registry_named(import->registry, digest, &refused))
		return 0;
	registry_report(&refused);
	return -1;
}

static int add_layer(struct import_source *import, unsigned i, struct jail_error *err)
{
	const struct local_layer *from = &import->source.layers[i];
	unsigned long long length = 0;
	int fd = image_files_open_file(import->source.files, from->file, &length, err);

	if (fd < 0)
		return -1;
	close(fd);
	/* The digest of the bytes as they are stored says as much as that of the content. */
	import->layers[i] = (struct image_layer){ .name = from->file, .digest = from->digest,
						  .diff_id = from->digest ? NULL : from->diff_id, .length = length,
						  .listing = -1, .list_to = -1 };
	import->request.total += length;
	return 0;
}

static int check_platform(const struct import_source *import)
{
	const char *made_for = import->config.architecture;
	const char *os = import->config.os;
	struct platform platform;

	if (os && strcmp(os, "linux"))
		return report_error("%s: it is an image for %s, and containers here are of Linux\n  next: choose another tag",
				    import->uri, os);
	if (!made_for || platform_of(&platform, import->architecture) || platform_fit(&platform, "linux", made_for, ""))
		return 0;
	if (import->architecture)
		return report_error("%s: it is an image for %s, not for %s", import->uri, made_for, platform.architecture);
	report_warning("%s is an image for %s, and this machine is %s", import->uri, made_for, platform.architecture);
	return 0;
}

static int resolve_source(struct import_source *import)
{
	struct jail_error err;
	int result = local_image_open(&import->source, import->uri, import->architecture, import->settings, &err);

	if (!result)
		result = image_config_parse(&import->config, import->source.config, import->source.config_length, import->uri, &err);
	if (!result && check_platform(import))
		return -1;
	import->layers = calloc(import->source.n_layers + 1u, sizeof(*import->layers));
	for (unsigned i = 0; !result && import->layers && i < import->source.n_layers; i++)
		result = add_layer(import, i, &err);
	import->request.failure = local_image_failed;
	import->request.layers.n_layers = import->source.n_layers;
	return result || !import->layers ? -(report_failure(&err)) : 0;
}

static int resolve_registry(struct import_source *import)
{
	struct registry_error refused;
	struct jail_error err;
	const struct registry_image *image;

	if (registry_resolve(import->registry, &import->image, &refused))
		return -registry_report(&refused);
	image = import->image;
	if (image_config_parse(&import->config, image->config, image->config_length, import->uri, &err))
		return -report_failure(&err);
	import->layers = calloc(image->n_layers + 1u, sizeof(*import->layers));
	if (!import->layers)
		return -report_error("no memory");
	for (unsigned i = 0; i < image->n_layers; i++)
		import->layers[i] = (struct image_layer){ .name = image->layers[i].digest,
							  .digest = image->layers[i].digest + strlen("sha256:"),
							  .listing = -1, .list_to = -1 };
	import->request.failure = registry_failed;
	import->request.layers.n_layers = image->n_layers;
	import->request.total = image->size;
	return 0;
}

int import_source_resolve(struct import_source *import)
{
	if (import->layers)
		return 0;
	if (import->registry ? resolve_registry(import) : resolve_source(import))
		return -1;
	if (import->request.layers.n_layers > IMAGE_LAYERS_MOST)
		return -report_error("%s: it has %u layers: more than %u are too many", import->uri, import->request.layers.n_layers,
				     IMAGE_LAYERS_MOST);
	import->request.uri = import->uri;
	import->request.config = &import->config;
	import->request.settings = import->settings;
	import->request.layers.layers = import->layers;
	import->request.layers.open_layer = open_layer;
	import->request.layers_context = import;
	return 0;
}

int import_source_start(struct import_source *import)
{
	struct registry_error refused;

	if (!import->registry)
		return 0;
	layer_cache_use_begin(&import->kept, import->cache, import->registry, import->image);
	if (!registry_layers_start(import->registry, import->image, import->kept.skip, import->kept.keep, &refused))
		return 0;
	return -registry_report(&refused);
}

bool import_source_keep(struct import_source *import)
{
	layer_cache_use_commit(&import->kept);
	return import->kept.anonymous && !registry_identified(import->registry);
}

void import_source_close(struct import_source *import)
{
	registry_close(import->registry);
	layer_cache_use_end(&import->kept);
	registry_image_free(import->image);
	local_image_close(&import->source);
	image_config_free(&import->config);
	free(import->layers);
	*import = (struct import_source){ .uri = NULL };
}
