/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads foreign (nondistributable) layers, which a registry need not have: the manifest gives addresses for them
 * (image-spec 1.1, descriptor.md, `urls`). */
#ifndef REGISTRY_FOREIGN_LAYER_H
#define REGISTRY_FOREIGN_LAYER_H

#include "http.h"
#include "registry.h"

/* Asks the layer's addresses one after the other, when the registry has said that it has it not (`err`). What is sent
 * there says nothing of who we are, and goes by TLS unless plain http is allowed everywhere. Returns 0 when one gave all
 * `sink` wants; -1: `err` has the registry's words, and below them each address's. REGISTRY_FAULT_STOPPED: `sink` ended it.
 * `registry` is the origin whose manifest names them: of another machine it names none of this one. `*identified` becomes true where an address was shown a client's certificate. */
int foreign_layer_fetch(const struct registry_layer *layer, const char *registry, struct http *http,
			const struct http_request *like, bool *identified, struct registry_error *err);

#endif
