/* SPDX-License-Identifier: Apache-2.0 */
/* A program for the tests in Python: it asks a registry by the client's own functions.
 *
 *	fetch digest [-a ARCH] URI       prints the digest
 *	fetch [-a ARCH] [-d DIR] URI     reads all layers, prints one JSON object a line: the image, then layers
 *
 * -d keeps manifests and configurations there, by digest, with DIGEST.anonymous beside those that may be anybody's.
 * FETCH_WAIT_MS: the reader's pause before each layer. Exit status 1 with the message on standard error.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/layers/hash.h"
#include "native/base/report.h"
#include "native/registry/registry.h"

static char *load(void *context, const char *digest, size_t *length, bool *anonymous)
{
	scoped_free char *path = text_format("%s/%s", (const char *)context, digest);
	scoped_free char *mark = text_format("%s/%s.anonymous", (const char *)context, digest);
	struct jail_error err;

	*anonymous = !access(mark, F_OK);
	return text_read(AT_FDCWD, path, 16 << 20, length, &err);
}

static void keep(void *context, const char *digest, const char *text, size_t length, bool anonymous)
{
	scoped_free char *path = text_format("%s/%s", (const char *)context, digest);
	scoped_free char *mark = text_format("%s.anonymous", path);
	scoped_fd other = anonymous ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || text_write(fd, text, length))
		report_error("cannot keep %s", path);
}

static void free_image(struct registry_image **image)
{
	registry_image_free(*image);
}


static int read_layer(struct registry *registry, const struct registry_image *image, unsigned i, char *block, size_t size)
{
	const char *wait = getenv("FETCH_WAIT_MS");
	struct registry_error err;
	struct image_hash hash;
	unsigned char digest[32];
	char digits[65];
	unsigned long long total = 0;
	ssize_t got;

	scoped_fd fd = registry_layer_open(registry, i);
	if (fd < 0)
		return registry_failure(registry, &err) ? registry_report(&err) : report_error("no layer %u", i);
	if (wait)
		usleep((useconds_t)atoi(wait) * 1000);
	image_hash_begin(&hash);
	while ((got = read(fd, block, size)) > 0) {
		image_hash_add(&hash, block, (size_t)got);
		total += (unsigned long long)got;
	}
	image_hash_end(&hash, digest);
	image_hash_digits(digest, digits);
	if (total != image->layers[i].size || strcmp(digits, image->layers[i].digest + 7)) {
		if (registry_failure(registry, &err))
			return registry_report(&err);
		return report_error("layer %u has a wrong digest", i);
	}
	printf("{\"digest\": \"sha256:%s\", \"size\": %llu, \"diff_id\": \"%s\", \"anonymous\": %s}\n", digits, total,
	       image->layers[i].diff_id, registry_layer_is_anonymous(registry, i) ? "true" : "false");
	return 0;
}

static int layers(struct registry *registry)
{
	__attribute__((cleanup(free_image))) struct registry_image *image = NULL;
	scoped_free char *block = malloc(65536);
	struct registry_error err;
	int result = 0;

	if (registry_resolve(registry, &image, &err))
		return registry_report(&err);
	printf("{\"digest\": \"%s\", \"named\": \"%s\", \"media_type\": \"%s\", \"config\": \"%s\", \"layers\": %u, "
	       "\"anonymous\": %s}\n",
	       image->digest, image->named, image->media_type, image->config_digest, image->n_layers, image->anonymous ? "true" : "false");
	if (registry_layers_start(registry, image, NULL, NULL, &err))
		result = registry_report(&err);
	for (unsigned i = 0; !result && i < image->n_layers; i++)
		result = read_layer(registry, image, i, block, 65536);
	registry_stop(registry);
	registry_close(registry);
	return result;
}

int main(int argc, char **argv)
{
	const char *architecture = NULL, *folder = NULL;
	struct settings settings;
	struct jail_error wrong;
	struct registry_uri uri;
	struct registry_error err;
	char digest[72];
	int option, result;

	bool digest_alone = argc > 1 && !strcmp(argv[1], "digest");
	optind = digest_alone ? 2 : 1;
	while ((option = getopt(argc, argv, "a:d:")) != -1)
		*(option == 'a' ? &architecture : &folder) = optarg;
	if (settings_load(&settings, NULL, &wrong))
		return report_failure(&wrong);
	const struct registry_documents documents = { .load = load, .keep = keep, .context = (void *)folder };
	if (registry_uri_parse(&uri, argv[optind] ? argv[optind] : "", &err))
		return registry_report(&err);
	struct registry *registry = registry_open(&settings, &uri, architecture, folder ? &documents : NULL, &err);
	if (!registry)
		return registry_report(&err);
	if (digest_alone) {
		result = registry_digest(registry, digest, &err) ? registry_report(&err) : puts(digest) < 0;
		registry_close(registry);
	} else {
		result = layers(registry);
	}
	settings_free(&settings);
	return result;
}
