/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one import from a registry (struct registry), for the registry client's own files. Callers of the
 * client include registry.h. */
#ifndef REGISTRY_SESSION_H
#define REGISTRY_SESSION_H

#include "endpoint.h"
#include "platform.h"
#include "registries.h"
#include "registry.h"

struct layers;

struct registry {
	const struct settings *settings;
	struct registry_uri uri;
	char name[736]; /* HOST/PATH:TAG@DIGEST, for messages */
	char named[72]; /* what the URI names, once known; or "" */
	struct platform platform;
	char platform_text[64];
	const struct registry_documents *documents;
	struct transport transport;
	struct endpoint endpoints[REGISTRIES_MAX_PLACES]; /* mirrors first; the order they are asked in */
	unsigned n_endpoints;
	unsigned chosen;   /* that gave the manifest: asked first for the rest */
	struct http *http; /* the caller's thread's */
	bool anonymous;    /* nobody was told who asks for any document of the image that is resolved */
	struct layers *layers;
};

/* Of a document with that digest; verified. The caller frees it. */
char *session_document(struct registry *registry, const char *what, const char *digest, size_t limit, size_t *length,
		       char media_type[128], struct registry_error *err);

void layers_end(struct layers *layers);

#endif
