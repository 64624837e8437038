/* SPDX-License-Identifier: Apache-2.0 */
/* Sends requests to one server that has the image: the registry itself or one of its mirrors. session.c calls it. */
#define _GNU_SOURCE
#include "endpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "error_response.h"
#include "internal_address.h"

void endpoint_begin(struct endpoint *endpoint, struct transport *transport, const char *user)
{
	endpoint->transport = transport;
	endpoint->authorization = (struct authorization){
		.settings = transport->settings,
		.host = endpoint->host,
		.path = endpoint->path,
		.user = user,
		.base = endpoint->base,
		.insecure = endpoint->insecure,
	};
	authorization_begin(&endpoint->authorization);
	pthread_mutex_init(&endpoint->deciding, NULL);
}

void endpoint_end(struct endpoint *endpoint)
{
	authorization_end(&endpoint->authorization);
	pthread_mutex_destroy(&endpoint->deciding);
}

/* With the token that holds now, and once or twice with a newer one. */
static int send_request(struct endpoint *endpoint, struct http *http, const struct endpoint_request *request,
			struct http_answer *answer, struct registry_error *err)
{
	scoped_free char *url = request->what ? text_format("%s/v2/%s/%s", endpoint->base, endpoint->path, request->what) :
						text_format("%s/v2/", endpoint->base);

	for (int tries = 0;; tries++) {
		scoped_free char *header = NULL;
		bool identifies;
		if (authorization_header(&endpoint->authorization, http, &header, &identifies, err))
			return -1;
		const struct http_request sent = {
			.host = endpoint->host, .doing = request->doing, .method = request->method, .url = url,
			.insecure = endpoint->insecure, .accept = request->accept, .authorization = header,
			.identifies = identifies,
			.offset = request->offset, .limit = request->limit, .sink = request->sink,
			.context = request->context,
		};
		http_answer_free(answer);
		if (http_do(http, &sent, answer, err))
			return -1;
		atomic_store(&endpoint->decided, true);
		if (answer->status == 401) {
			int again = authorization_challenged(&endpoint->authorization, header, answer, err);
			if (again < 0)
				return -1;
			/* A registry that refuses one token after the other refuses us. Of those that several threads share
			 * one or two may have been used up by the others. */
			if (again && tries < 3)
				continue;
		}
		if (answer->status == 401 || answer->status == 403)
			return authorization_refused(&endpoint->authorization, request->doing, answer, err);
		/* Also 304 and what redirects nowhere. */
		if (answer->status >= 300)
			return error_response_fail(endpoint->host, request->doing, answer, err);
		return 0;
	}
}

int endpoint_do(struct endpoint *endpoint, struct http *http, const struct endpoint_request *request,
		struct http_answer *answer, struct registry_error *err)
{
	/* The hub's interface has a host of its own. */
	const char *host = strcmp(endpoint->host, "docker.io") ? endpoint->host : "registry-1.docker.io";
	bool plain = endpoint->transport->allow_http;
	bool either = !plain && (endpoint->insecure || address_is_loopback(host));

	*answer = (struct http_answer){ .retry_after_s = -1 };
	if (!atomic_load(&endpoint->decided))
		snprintf(endpoint->base, sizeof(endpoint->base), "%s://%s", plain ? "http" : "https", host);
	if (!send_request(endpoint, http, request, answer, err))
		return 0;
	if (atomic_load(&endpoint->decided) || !either ||
	    (err->fault != REGISTRY_FAULT_TLS && err->fault != REGISTRY_FAULT_UNREACHABLE && err->fault != REGISTRY_FAULT_LOST))
		return -1;
	struct registry_error first = *err;
	snprintf(endpoint->base, sizeof(endpoint->base), "http://%s", host);
	if (!send_request(endpoint, http, request, answer, err))
		return 0;
	/* Where nobody answered, what TLS said is the better reason, unless it said that there is none. */
	bool silent = err->fault == REGISTRY_FAULT_UNREACHABLE || err->fault == REGISTRY_FAULT_LOST;
	if (!atomic_load(&endpoint->decided) && silent && first.fault != REGISTRY_FAULT_TLS)
		*err = first;
	return -1;
}

int endpoint_decide(struct endpoint *endpoint, struct http *http, struct registry_error *err)
{
	const struct endpoint_request request = { .method = "GET", .doing = "ask how it is reached", .limit = 1024 * 1024 };
	scoped_answer answer = { 0 };
	int result = 0;

	if (atomic_load(&endpoint->decided))
		return 0;
	pthread_mutex_lock(&endpoint->deciding);
	/* Whatever it answers: what is asked next has the better message. */
	if (!atomic_load(&endpoint->decided) && endpoint_do(endpoint, http, &request, &answer, err))
		result = atomic_load(&endpoint->decided) ? 0 : -1;
	pthread_mutex_unlock(&endpoint->deciding);
	return result;
}

int endpoint_retry(struct endpoint *endpoint, struct http *http, const struct endpoint_request *request,
		   struct http_answer *answer, struct registry_error *err)
{
	struct retries retries = { .transport = endpoint->transport };

	for (;;) {
		if (!endpoint_do(endpoint, http, request, answer, err))
			return 0;
		if (retries_wait(&retries, err))
			return -1;
		http_answer_free(answer);
	}
}
