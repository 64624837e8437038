/* SPDX-License-Identifier: Apache-2.0 */
/* Opens an image on this machine, whether an OCI layout, an archive or one of a daemon's, and gives its configuration
 * and layers. docker_archive.c, oci_layout.c and import_source.c call it. */
#define _GNU_SOURCE
#include "local_image.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "daemon.h"

static const char *const schemes[] = { "oci:", "oci-archive:", "docker-archive:", "dockerd://", "podman://" };

bool local_image_is_local(const char *uri)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (text_starts(uri, schemes[i]))
			return true;
	return false;
}

void local_image_add_layers(struct local_image *source, unsigned count)
{
	source->layers = calloc(count ? count : 1, sizeof(*source->layers));
	if (!source->layers)
		abort();
	source->n_layers = count;
}

/* PATH, or PATH:REFERENCE where PATH is there. `*path` is the caller's. */
static const char *split(const char *rest, char **path)
{
	struct stat st;

	*path = text_copy(rest, strlen(rest));
	for (char *colon = *path; stat(*path, &st) && (colon = strchr(colon, ':')); colon++) {
		*colon = '\0';
		if (!stat(*path, &st))
			return rest + (colon - *path) + 1;
		*colon = ':';
	}
	return NULL;
}

/* The last part of a path or the whole of a reference, fit for a file's name. */
static char *name_of(const char *path, const char *reference)
{
	scoped_free char *copy = text_copy(path, strlen(path));

	for (size_t length = strlen(copy); length > 1 && copy[length - 1] == '/'; length--)
		copy[length - 1] = '\0';
	const char *slash = strrchr(copy, '/'), *base = slash && slash[1] ? slash + 1 : copy;
	size_t length = strlen(base);
	static const char *const suffixes[] = { ".gz", ".zst", ".tar", ".tgz", ".oci" };
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (length > strlen(suffixes[i]) && !strncmp(base + length - strlen(suffixes[i]), suffixes[i], strlen(suffixes[i])))
			length -= strlen(suffixes[i]);
	char *name = reference ? text_format("%.*s+%s", (int)length, base, reference) : text_copy(base, length);
	for (char *c = name; *c; c++)
		if (*c == '/' || *c == ':')
			*c = '+';
	return name;
}

char *local_image_name(const char *uri)
{
	scoped_free char *path = NULL;
	const char *slashes = strstr(uri, "://"), *reference;

	if (slashes)
		return daemon_image_name(slashes + strlen("://"));
	reference = split(strchr(uri, ':') + 1, &path);
	return name_of(path, reference);
}

static int open_file(struct local_image *source, const char *uri, const char *architecture, const struct settings *settings,
		     struct jail_error *err)
{
	scoped_free char *path = NULL;
	const char *reference = split(strchr(uri, ':') + 1, &path);
	bool folder = text_starts(uri, "oci:");

	source->files = folder ? image_files_open_folder(path, err) : image_files_open_archive(path, settings, err);
	if (!source->files)
		return -1;
	if (folder || text_starts(uri, "oci-archive:"))
		return local_image_read_oci(source, reference, architecture, err);
	return local_image_read_docker(source, reference, err);
}

static int open_daemon(struct local_image *source, const char *uri, const struct settings *settings, struct jail_error *err)
{
	source->files = daemon_save(uri, settings, err);
	return source->files ? local_image_read_docker(source, NULL, err) : -1;
}

int local_image_open(struct local_image *source, const char *uri, const char *architecture, const struct settings *settings,
		struct jail_error *err)
{
	*source = (struct local_image){ .uri = text_format("%s", uri) };
	return strstr(uri, "://") ? open_daemon(source, uri, settings, err)
				  : open_file(source, uri, architecture, settings, err);
}

void local_image_close(struct local_image *source)
{
	for (unsigned i = 0; i < source->n_layers; i++) {
		free(source->layers[i].file);
		free(source->layers[i].digest);
		free(source->layers[i].diff_id);
	}
	free(source->layers);
	free(source->uri);
	free(source->digest);
	free(source->config);
	image_files_close(source->files);
	*source = (struct local_image){ .uri = NULL };
}

int local_image_open_layer(void *context, unsigned layer)
{
	struct local_image *source = context;
	unsigned long long length;
	int fd = image_files_open_file(source->files, source->layers[layer].file, &length, &source->failure);

	source->failed = fd < 0;
	return fd;
}
