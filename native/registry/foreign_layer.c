/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads foreign layers: those that the registry lacks, and whose manifest gives other addresses for them. fetch.c
 * calls it. */
#define _GNU_SOURCE
#include "foreign_layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "error_response.h"
#include "internal_address.h"
#include "origin.h"

/* Each is a request to wherever an image's author likes. */
#define ADDRESSES 4

static bool is_allowed(const char *url, const char *origin, const struct transport *transport)
{
	scoped_free char *copy = text_copy(origin, strlen(origin));
	const char *host = strstr(copy, "://") + strlen("://");

	return text_starts(url, "https:") || transport->allow_http || address_is_loopback(host);
}

static int ask_url(const char *url, const char *registry, struct http *http, const struct http_request *like, bool *identified,
		   struct registry_error *err)
{
	scoped_free char *origin = origin_of(url);
	scoped_answer answer = { 0 };

	if (!origin)
		return registry_fail(err, REGISTRY_FAULT_IMAGE, "\"%.100s\" is no web address", url);
	if (!is_allowed(url, origin, http_transport(http)))
		return registry_fail(err, REGISTRY_FAULT_TLS, "%s: plain http is not allowed (ENROOT_ALLOW_HTTP)", origin);
	if (address_is_internal(registry, origin))
		return registry_fail(err, REGISTRY_FAULT_SERVER, "%s: it is an address of this machine, and the registry is not", origin);
	struct http_request request = *like;
	request.host = origin;
	request.url = url;
	int result = http_do(http, &request, &answer, err);
	*identified |= answer.identified;
	if (result)
		return -1;
	return answer.status == 200 || answer.status == 206 ? 0 : error_response_fail(origin, like->doing, &answer, err);
}

int foreign_layer_fetch(const struct registry_layer *layer, const char *registry, struct http *http,
			const struct http_request *like, bool *identified, struct registry_error *err)
{
	scoped_buffer said = { 0 };
	scoped_free char *copy = text_copy(layer->urls, strlen(layer->urls));
	char *rest = copy, *url;

	for (int n = 0; n < ADDRESSES && (url = strsep(&rest, "\n")); n++) {
		struct registry_error why = { .retry_after_s = -1 };
		if (*url && !ask_url(url, registry, http, like, identified, &why))
			return 0;
		if (why.fault == REGISTRY_FAULT_STOPPED) {
			*err = why;
			return -1;
		}
		text_append_string(&said, "\n  its address ");
		text_append_string(&said, jail_one_line(why.message));
	}
	size_t used = strlen(err->message);
	snprintf(err->message + used, sizeof(err->message) - used, "%s", said.text ? said.text : "");
	return -1;
}
