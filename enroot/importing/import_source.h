/* SPDX-License-Identifier: Apache-2.0 */
/* Where an image to import comes from, a registry or this machine, ready to be produced from.
 *
 * What goes wrong here is told to the user at once: a registry's answer may take several lines.
 */
#ifndef IMPORTING_ORIGIN_H
#define IMPORTING_ORIGIN_H

#include "layer_cache_use.h"
#include "produce.h"
#include "source.h"

struct origin {
	const char *uri;
	const struct settings *settings;
	const char *architecture; /* as the option has it, or NULL */
	struct source source;     /* of this machine */
	struct registry *registry; /* or NULL: it is of this machine */
	struct registry_uri parsed;
	struct registry_image *image;
	struct cache *cache;      /* that has and gets layers; NULL: none */
	struct kept_layers kept;
	struct image_config config;
	struct image_layer *layers;
	struct produce_request request; /* after origin_resolve */
};

/* What the image is called without another name, without a suffix; the caller frees it. NULL after a message: `uri` is none. */
char *origin_name(const char *uri);

/* Connects to nothing yet. `documents` of a registry's images may be NULL. Returns 0, or -1 after a message; close it in both
 * cases. */
int origin_open(struct origin *origin, const char *uri, const char *architecture, const struct settings *settings,
		const struct registry_documents *documents);

/* The digest that a cache knows the image by: asks a registry no more than that. Returns 0, 1: it has none that is known
 * before all is read; or -1 after a message. */
int origin_digest(struct origin *origin, char digest[72]);

/* Reads the configuration, and finds the layers; a second time it does nothing. Returns 0, or -1 after a message. */
int origin_resolve(struct origin *origin);

/* Begins to fetch layers. Returns 0, or -1 after a message. */
int origin_start(struct origin *origin);

/* All was read and is right: its layers are kept. Returns whether all of the image came without telling anybody who asks. */
bool origin_keep(struct origin *origin);

void origin_close(struct origin *origin);

#endif
