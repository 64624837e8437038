/* SPDX-License-Identifier: Apache-2.0 */
/* One server that has the image, the registry itself or a mirror, and requests to it with our credentials. */
#ifndef REGISTRY_ENDPOINT_H
#define REGISTRY_ENDPOINT_H

#include "authorization.h"

struct endpoint {
	char host[264];    /* as people call it */
	char path[512];    /* of the repository there */
	bool insecure;     /* any certificate, or plain http */
	bool is_mirror;
	atomic_bool decided; /* it answered at `base` */
	pthread_mutex_t deciding;
	char base[300];    /* "https://HOST[:PORT]" */
	struct transport *transport;
	struct authorization authorization;
};

/* host, path and insecure are set. `user`: whom the URI names, or "". */
void endpoint_begin(struct endpoint *endpoint, struct transport *transport, const char *user);
void endpoint_end(struct endpoint *endpoint);

struct endpoint_request {
	const char *method;
	const char *what;   /* below the repository: "manifests/latest"; NULL: /v2/ alone */
	const char *doing;  /* completes "could not ..." */
	const char *accept; /* or NULL */
	unsigned long long offset;
	size_t limit;
	int (*sink)(void *context, unsigned long long position, const char *data, size_t length);
	void *context;
};

/* One attempt, repeated only with a newer token, or by another scheme. Returns 0 with a status below 300, or -1. The
 * answer is to be freed in both cases. */
int endpoint_do(struct endpoint *endpoint, struct http *http, const struct endpoint_request *request,
		struct http_answer *answer, struct registry_error *err);

/* Finds out how it is reached, and who it wants to know, where that is open: for threads, before they ask. Returns 0 or
 * -1. */
int endpoint_decide(struct endpoint *endpoint, struct http *http, struct registry_error *err);

/* The same as endpoint_do, tried again while the failure is one that may pass. */
int endpoint_retry(struct endpoint *endpoint, struct http *http, const struct endpoint_request *request,
		   struct http_answer *answer, struct registry_error *err);

#endif
