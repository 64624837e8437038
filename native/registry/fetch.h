/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads one blob; when connections break, further requests ask for the rest of its bytes. */
#ifndef REGISTRY_FETCH_H
#define REGISTRY_FETCH_H

#include "session.h"

struct fetch_request {
	const struct registry_layer *layer;
	/* Takes the next bytes; non-zero: end it. */
	int (*deliver)(void *context, const char *data, size_t length);
	void *context;
};

/* Returns 0: all bytes were delivered, as many as the manifest says. -1; REGISTRY_FAULT_STOPPED when deliver wanted it. The
 * digest is not looked at. `*anonymous`: no request that gave bytes of it said who asks. */
int fetch_blob(struct registry *registry, struct http *http, const struct fetch_request *request, bool *anonymous,
	       struct registry_error *err);

#endif
