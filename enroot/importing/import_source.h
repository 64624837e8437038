/* SPDX-License-Identifier: Apache-2.0 */
/* The image that an import names, in a registry or on this machine.
 *
 * Errors are printed at once: a registry's answer may take several lines.
 */
#ifndef IMPORTING_IMPORT_SOURCE_H
#define IMPORTING_IMPORT_SOURCE_H

#include "layer_cache_use.h"
#include "produce.h"
#include "local_image.h"

struct import_source {
	const char *uri;
	const struct settings *settings;
	const char *architecture; /* as the option has it, or NULL */
	struct local_image source;     /* of this machine */
	struct registry *registry; /* or NULL: it is of this machine */
	struct registry_uri parsed;
	struct registry_image *image;
	struct cache *cache;      /* that has and gets layers; NULL: none */
	struct layer_cache_use kept;
	struct image_config config;
	struct image_layer *layers;
	struct produce_request request; /* after import_source_resolve */
};

/* What the image is called without another name, without a suffix; the caller frees it. NULL after a message: `uri` is none. */
char *import_source_name(const char *uri);

/* Connects to nothing yet. `documents` of a registry's images may be NULL. Returns 0, or -1 after a message; close it in both
 * cases. */
int import_source_open(struct import_source *import, const char *uri, const char *architecture, const struct settings *settings,
		       const struct registry_documents *documents);

/* The digest that a cache knows the image by: asks a registry no more than that. Returns 0, 1: it has none that is known
 * before all is read; or -1 after a message. */
int import_source_digest(struct import_source *import, char digest[72]);

/* Reads the configuration, and finds the layers; a second time it does nothing. Returns 0, or -1 after a message. */
int import_source_resolve(struct import_source *import);

/* Begins to fetch layers. Returns 0, or -1 after a message. */
int import_source_start(struct import_source *import);

/* All was read and is right: its layers are kept. Returns whether all of the image came without telling anybody who asks. */
bool import_source_keep(struct import_source *import);

void import_source_close(struct import_source *import);

#endif
