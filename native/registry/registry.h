/* SPDX-License-Identifier: Apache-2.0 */
/* The registry client of enroot: from a URI to one image's manifest, configuration and layers.
 *
 *	struct registry_uri uri;
 *	struct registry_image *image;
 *	registry_uri_parse(&uri, "docker://debian:12", &err);
 *	struct registry *registry = registry_open(&settings, &uri, architecture, documents, &err);
 *	registry_resolve(registry, &image, &err);             // manifest, configuration, list of layers
 *	registry_layers_start(registry, image, skip, keep, &err); // threads begin to fetch
 *	registry_layer_open(registry, i)                      // for image_request.open_layer
 *	registry_failure(registry, &err)                      // when the core failed: was it the network?
 *	registry_close(registry); registry_image_free(image);
 *
 * One thread of the caller's at a time, apart from registry_failure and registry_stop.
 */
#ifndef REGISTRY_H
#define REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "native/settings/settings.h"
#include "error.h"
#include "uri.h"

struct registry_layer {
	char digest[72];         /* "sha256:..." of the bytes that registry_layer_open gives */
	char diff_id[72];        /* "sha256:..." of the decompressed ones */
	unsigned long long size; /* of the compressed bytes */
	char media_type[128];
	char *urls;              /* where it is if the registry has it not: one a line; "" for nearly all */
};

struct registry_image {
	char digest[72];       /* of the manifest of this platform: what `enroot digest` prints, and the cache's key */
	char named[72];        /* what the tag names: an index's digest, or the same */
	char media_type[128];  /* of the manifest */
	char config_digest[72];
	char *manifest, *config; /* JSON as it came, digests verified, terminated */
	size_t manifest_length, config_length;
	struct registry_layer *layers; /* the top one first, as image_request wants them */
	unsigned n_layers;
	unsigned long long size; /* of all layers, compressed */
	bool anonymous; /* manifest, index and configuration came without telling anybody who asks: all may have them */
};

/* Manifests, indexes and configurations that are here already, by digest ("sha256:..."). What `load` gives is verified:
 * it may be shared with others. With it the registry is asked one HEAD for a tag, and nothing for a digest, when all is
 * there. */
struct registry_documents {
	/* malloc'ed text and its length, or NULL. `*anonymous`: it was kept as that. May be NULL: nothing is here. */
	char *(*load)(void *context, const char *digest, size_t *length, bool *anonymous);
	/* `anonymous`: the request that fetched it, its redirects and that for its token did not say who asks. Then others on this
	 * machine may have it, else not. May be NULL. */
	void (*keep)(void *context, const char *digest, const char *text, size_t length, bool anonymous);
	void *context;
};

struct registry;

/* `architecture` as -a has it ("amd64", "arm64", "x86_64", "arm/v7"); NULL: this machine's. `documents` may be NULL; what
 * it points to must outlive the registry, as must `settings`. Connects to nothing yet. */
struct registry *registry_open(const struct settings *settings, const struct registry_uri *uri, const char *architecture,
			       const struct registry_documents *documents, struct registry_error *err);

/* Asks the registry, or its mirrors. Returns 0 or -1. */
int registry_resolve(struct registry *registry, struct registry_image **image, struct registry_error *err);
void registry_image_free(struct registry_image *image);

/* The digest of the manifest alone, for `enroot digest`: no configuration is fetched. */
int registry_digest(struct registry *registry, char digest[72], struct registry_error *err);

/* What the URI names now, an index or a manifest: by one HEAD for a tag, by nothing for a digest. Enough to find an image
 * in a cache; registry_resolve asks no second time. Returns 0 or -1. */
int registry_named(struct registry *registry, char digest[72], struct registry_error *err);

/* "linux/amd64" or "linux/arm/v7": which manifest of an index is meant. The registry's. */
const char *registry_platform(const struct registry *registry);

/* Whether any request so far said who asks: others on this machine may not know that there is such an image. Any thread. */
bool registry_identified(struct registry *registry);

/* Whether layer i was fetched, all of it, without telling anybody who asks. False until then. Any thread. */
bool registry_layer_is_anonymous(struct registry *registry, unsigned layer);

/* Starts up to ENROOT_MAX_CONNECTIONS fetches, in the order of the layers. `skip[i]`: somebody else has layer i; may be
 * NULL. `keep[i]`: a descriptor of an empty file, open for reading and writing, which takes all bytes of layer i besides
 * (a draft of the cache), or -1; may be NULL. It is whole when it has the layer's size after the layer was read to its
 * end; a disk that is full leaves it shorter, and is no failure. The descriptors stay the caller's and must outlive the
 * registry, as must `image`. Nothing is to be resolved afterwards. Returns 0 or -1. */
int registry_layers_start(struct registry *registry, const struct registry_image *image, const bool *skip,
			  const int *keep, struct registry_error *err);

/* A descriptor of the compressed bytes of layer i, a pipe or a file, the reader's to close; -1: see registry_failure. The
 * digest is not checked here: who reads does it. Has the type of image_request.open_layer; `registry` is a struct
 * registry. A second time gives the layer once more, fetched anew. */
int registry_layer_open(void *registry, unsigned layer);

/* Whether fetching failed, and how first: then a layer that ended early is the consequence. Any thread. */
bool registry_failure(struct registry *registry, struct registry_error *err);

/* Ends all fetches soon; descriptors that were given out end. Any thread. */
void registry_stop(struct registry *registry);

/* Stops, waits for its threads. NULL is allowed. */
void registry_close(struct registry *registry);

#endif
