/* SPDX-License-Identifier: Apache-2.0 */
/* Parses manifests, image indexes and configurations, of OCI image-spec 1.1 and Docker's schema 2. */
#ifndef REGISTRY_MANIFEST_H
#define REGISTRY_MANIFEST_H

#include "platform.h"
#include "registry.h"

/* What may be answered. */
#define MANIFEST_ACCEPT                                                                                         \
	"application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, " \
	"application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"

/* The largest that registries must take (distribution-spec 1.1, "Pushing manifests"). A configuration has no such bound;
 * those with long histories have 100 kB. */
#define MANIFEST_LIMIT ((size_t)4 * 1024 * 1024)
#define CONFIG_LIMIT ((size_t)8 * 1024 * 1024)

/* "sha256:" and 64 digits: all others are refused, they become part of addresses and paths. */
bool manifest_is_digest(const char *digest);

/* Writes "sha256:..." of `text`. */
void manifest_digest(const char *text, size_t length, char digest[72]);

/* Whether the type that a registry names is one of a manifest of an image, and of no index. */
bool manifest_is_single(const char *media_type);

/* Whether a configuration of this type is an image's. Charts, models and signatures are manifests too, with others. */
bool manifest_is_configuration(const char *media_type);

/* Where an index leads for `platform`: returns 1 and its entry's digest. 0: `text` is no index but a manifest. -1:
 * neither, or the platform is absent; then the message says which there are. `name` is the image's, for messages;
 * `media_type` is what the registry called it, or "". */
int manifest_choose(const char *text, size_t length, const char *name, const char *media_type,
		    const struct platform *platform, char digest[72], struct registry_error *err);

/* Fills layers (diff_id not yet), config_digest, media_type and size of `image` from its manifest. */
int manifest_read(struct registry_image *image, const char *name, struct registry_error *err);
void manifest_free_layers(struct registry_image *image);

/* Fills the diff_ids from its configuration; says it (a warning, or `err` where -a asked for another) when it is made for
 * another platform. */
int manifest_read_config(struct registry_image *image, const char *name, const struct platform *platform,
			 struct registry_error *err);

#endif
