/* SPDX-License-Identifier: Apache-2.0 */
/* Extracts the origin of a URL: its scheme, host and port. authorization.c, foreign_layer.c and http.c call it. */
#define _GNU_SOURCE
#include "origin.h"

#include <curl/curl.h>
#include <string.h>

#include "native/base/text.h"

char *origin_of(const char *url)
{
	CURLU *parts = curl_url();
	char *scheme = NULL, *host = NULL, *port = NULL, *origin = NULL;

	if (parts && !curl_url_set(parts, CURLUPART_URL, url, 0) && !curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) &&
	    !curl_url_get(parts, CURLUPART_HOST, &host, 0) &&
	    !curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) &&
	    (!strcmp(scheme, "https") || !strcmp(scheme, "http")))
		origin = text_format("%s://%s:%s", scheme, host, port);
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_url_cleanup(parts);
	for (char *c = origin; c && *c; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c - 'A' + 'a');
	return origin;
}
