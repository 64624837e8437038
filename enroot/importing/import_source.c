/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the source of an import, a registry or this machine, and tells the user what goes wrong. load.c and cached_image.c
 * call it. */
#define _GNU_SOURCE
#include "import_source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/registry/platform.h"
#include "native/base/report.h"

char *origin_name(const char *uri)
{
	struct registry_uri parsed;
	struct registry_error refused;
	char name[512];

	if (source_is_local(uri))
		return source_name(uri);
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

static bool source_failed(void *context)
{
	const struct origin *origin = context;

	if (origin->source.failed)
		report_failure(&origin->source.failure);
	return origin->source.failed;
}

static bool registry_failed(void *context)
{
	struct origin *origin = context;
	struct registry_error why;

	if (!registry_failure(origin->registry, &why))
		return kept_layers_failed(&origin->kept);
	registry_report(&why);
	return true;
}

static int open_layer(void *context, unsigned layer)
{
	struct origin *origin = context;

	if (!origin->registry)
		return source_open_layer(&origin->source, layer);
	int fd = kept_layers_open(&origin->kept, layer);
	return fd >= 0 ? fd : registry_layer_open(origin->registry, layer);
}

int origin_open(struct origin *origin, const char *uri, const char *architecture, const struct settings *settings,
		const struct registry_documents *documents)
{
	struct registry_error refused;

	*origin = (struct origin){ .uri = uri, .settings = settings, .architecture = architecture };
	if (source_is_local(uri))
		return 0;
	if (!registry_uri_parse(&origin->parsed, uri, &refused))
		origin->registry = registry_open(settings, &origin->parsed, architecture, documents, &refused);
	if (origin->registry)
		return 0;
	registry_report(&refused);
	return -1;
}

int origin_digest(struct origin *origin, char digest[72])
{
	struct registry_error refused;

	if (!origin->registry)
		return 1;
	if (!registry_named(origin->registry, digest, &refused))
		return 0;
	registry_report(&refused);
	return -1;
}

static int add_layer(struct origin *origin, unsigned i, struct jail_error *err)
{
	const struct source_layer *from = &origin->source.layers[i];
	unsigned long long length = 0;
	int fd = place_open_file(origin->source.place, from->file, &length, err);

	if (fd < 0)
		return -1;
	close(fd);
	/* The digest of the bytes as they are stored says as much as that of the content. */
	origin->layers[i] = (struct image_layer){ .name = from->file, .digest = from->digest,
						  .diff_id = from->digest ? NULL : from->diff_id, .length = length,
						  .listing = -1, .list_to = -1 };
	origin->request.total += length;
	return 0;
}

static int check_platform(const struct origin *origin)
{
	const char *made_for = origin->config.architecture;
	const char *os = origin->config.os;
	struct platform platform;

	if (os && strcmp(os, "linux"))
		return report_error("%s: it is an image for %s, and containers here are of Linux\n  next: choose another tag",
				    origin->uri, os);
	if (!made_for || platform_of(&platform, origin->architecture) || platform_fit(&platform, "linux", made_for, ""))
		return 0;
	if (origin->architecture)
		return report_error("%s: it is an image for %s, not for %s", origin->uri, made_for, platform.architecture);
	report_warning("%s is an image for %s, and this machine is %s", origin->uri, made_for, platform.architecture);
	return 0;
}

static int resolve_source(struct origin *origin)
{
	struct jail_error err;
	int result = source_open(&origin->source, origin->uri, origin->architecture, origin->settings, &err);

	if (!result)
		result = image_config_parse(&origin->config, origin->source.config, origin->source.config_length, origin->uri, &err);
	if (!result && check_platform(origin))
		return -1;
	origin->layers = calloc(origin->source.n_layers + 1u, sizeof(*origin->layers));
	for (unsigned i = 0; !result && origin->layers && i < origin->source.n_layers; i++)
		result = add_layer(origin, i, &err);
	origin->request.failure = source_failed;
	origin->request.layers.n_layers = origin->source.n_layers;
	return result || !origin->layers ? -(report_failure(&err)) : 0;
}

static int resolve_registry(struct origin *origin)
{
	struct registry_error refused;
	struct jail_error err;
	const struct registry_image *image;

	if (registry_resolve(origin->registry, &origin->image, &refused))
		return -registry_report(&refused);
	image = origin->image;
	if (image_config_parse(&origin->config, image->config, image->config_length, origin->uri, &err))
		return -report_failure(&err);
	origin->layers = calloc(image->n_layers + 1u, sizeof(*origin->layers));
	if (!origin->layers)
		return -report_error("no memory");
	for (unsigned i = 0; i < image->n_layers; i++)
		origin->layers[i] = (struct image_layer){ .name = image->layers[i].digest,
							  .digest = image->layers[i].digest + strlen("sha256:"),
							  .listing = -1, .list_to = -1 };
	origin->request.failure = registry_failed;
	origin->request.layers.n_layers = image->n_layers;
	origin->request.total = image->size;
	return 0;
}

int origin_resolve(struct origin *origin)
{
	if (origin->layers)
		return 0;
	if (origin->registry ? resolve_registry(origin) : resolve_source(origin))
		return -1;
	if (origin->request.layers.n_layers > IMAGE_LAYERS_MOST)
		return -report_error("%s: it has %u layers: more than %u are too many", origin->uri, origin->request.layers.n_layers,
				     IMAGE_LAYERS_MOST);
	origin->request.uri = origin->uri;
	origin->request.config = &origin->config;
	origin->request.settings = origin->settings;
	origin->request.layers.layers = origin->layers;
	origin->request.layers.open_layer = open_layer;
	origin->request.layers_context = origin;
	return 0;
}

int origin_start(struct origin *origin)
{
	struct registry_error refused;

	if (!origin->registry)
		return 0;
	kept_layers_begin(&origin->kept, origin->cache, origin->registry, origin->image);
	if (!registry_layers_start(origin->registry, origin->image, origin->kept.skip, origin->kept.keep, &refused))
		return 0;
	return -registry_report(&refused);
}

bool origin_keep(struct origin *origin)
{
	kept_layers_commit(&origin->kept);
	return origin->kept.anonymous && !registry_identified(origin->registry);
}

void origin_close(struct origin *origin)
{
	registry_close(origin->registry);
	kept_layers_end(&origin->kept);
	registry_image_free(origin->image);
	source_close(&origin->source);
	image_config_free(&origin->config);
	free(origin->layers);
	*origin = (struct origin){ .uri = NULL };
}
