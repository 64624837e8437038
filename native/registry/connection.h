/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the certificate authorities and the proxy for connecting to a host, and explains failures to connect. */
#ifndef REGISTRY_CONNECTION_H
#define REGISTRY_CONNECTION_H

#include <curl/curl.h>

#include "error.h"
#include "request.h"
#include "transport.h"

/* Sets all that does not depend on the request's headers and body. `certificate` becomes true where a client's certificate is
 * shown. Returns 0, or -1: a certificate's file is wrong. */
int connection_prepare(CURL *easy, const struct transport *transport, const char *url,
		       const struct http_request *request, bool *certificate, struct registry_error *err);

/* Fills `err` from what the library says; returns -1. */
int connection_failed(CURL *easy, CURLcode result, const char *said, const struct http_request *request,
		      struct registry_error *err);

#endif
