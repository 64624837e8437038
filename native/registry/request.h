/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of one HTTP request, which http.c sends. */
#ifndef REGISTRY_REQUEST_H
#define REGISTRY_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

struct http_request {
	const char *host;          /* the registry, as messages call it */
	const char *doing;         /* completes "HOST: could not ..." */
	const char *method;        /* GET, HEAD, POST */
	const char *url;
	bool insecure;             /* any certificate will do, and plain http behind a redirect too */
	const char *accept;        /* or NULL */
	const char *authorization; /* or NULL; sent to the origin of `url` alone */
	bool identifies;           /* it, or `form`, says who asks; an anonymous token does not */
	const char *form;          /* the body of a POST, or NULL */
	unsigned long long offset; /* the first byte that is wanted */
	size_t limit;              /* of a body that is collected, in bytes */
	/* Takes the body of a 200 or 206, `position` the place of its first byte; else it is collected. Non-zero: end it,
	 * and `http_do` returns -1 with REGISTRY_FAULT_STOPPED. */
	int (*sink)(void *context, unsigned long long position, const char *data, size_t length);
	void *context;
};

#endif
