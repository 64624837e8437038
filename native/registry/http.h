/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one HTTP request over a connection that is kept for the next one. Redirects are followed here and not by
 * libcurl, so that credentials go to no other host. */
#ifndef REGISTRY_HTTP_H
#define REGISTRY_HTTP_H

#include <stdbool.h>

#include "native/base/text.h"
#include "error.h"
#include "request.h"
#include "transport.h"

struct http;

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

/* Returns 0 with any status; -1: there was no whole answer. The answer is to be freed in both cases. */
int http_do(struct http *http, const struct http_request *request, struct http_answer *answer,
	    struct registry_error *err);
void http_answer_free(struct http_answer *answer);

#define scoped_answer __attribute__((cleanup(http_answer_free))) struct http_answer

#endif
