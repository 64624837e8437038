/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request and its answer, over a connection that is kept for the next. Redirects are followed here and not by
 * the library: what proves who we are goes to no other host.
 */
#ifndef REGISTRY_HTTP_H
#define REGISTRY_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "native/base/text.h"
#include "error.h"
#include "transport.h"

struct http;

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

struct http_answer {
	int status;
	/* The request, or one that it was redirected from or to, said who asks: by `authorization` or by a client's certificate.
	 * Others on this machine may not have the right to what came. Also set where http_do fails. */
	bool identified;
	struct text_buffer body;
	struct text_buffer challenge; /* all WWW-Authenticate, ", " between them */
	char media_type[128];
	char digest[72];              /* Docker-Content-Digest, or "" */
	double retry_after_s;         /* below 0: none */
};

struct http *http_open(struct transport *transport, struct registry_error *err);
void http_close(struct http *http);
struct transport *http_transport(const struct http *http);
/* With the transport's lock held. */
void http_wake_all(struct http *first);

/* Returns 0 with any status; -1: there was no whole answer. The answer is to be freed in both cases. */
int http_do(struct http *http, const struct http_request *request, struct http_answer *answer,
	    struct registry_error *err);
void http_answer_free(struct http_answer *answer);

#define scoped_answer __attribute__((cleanup(http_answer_free))) struct http_answer

/* "scheme://host:port" of a URL, which the caller frees; NULL: it is no URL of http. */
char *http_origin(const char *url);
/* Whether what came from the origin `from`, another machine, names an origin of this one, or of a service that its provider has
 * for it alone: what answers there answers to us, and not to whoever sent us. By the name; a name that is resolved to such an address
 * is not seen here. */
bool http_leads_home(const char *from, const char *to);
/* Whether a host, with or without a port, is this machine by its very name. */
bool http_is_loopback(const char *host);

#endif
