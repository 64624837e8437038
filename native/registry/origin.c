/* SPDX-License-Identifier: Apache-2.0 */
/* Extracts scheme, host and port of a URL, and tells whether a redirect leads to this machine or its cloud's metadata
 * service. Files of this folder call it. */
#define _GNU_SOURCE
#include "origin.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>

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

bool origin_is_loopback(const char *host)
{
	size_t length = strcspn(host, ":");

	if (*host == '[')
		return text_starts(host, "[::1]");
	if (length == 9 && !strncasecmp(host, "localhost", 9))
		return true;
	if (length > 10 && !strncasecmp(host + length - 10, ".localhost", 10))
		return true;
	return text_starts(host, "127.") && strspn(host, "0123456789.") == length;
}

bool origin_leads_home(const char *from, const char *to)
{
	static const char *const here[] = { "0.", "169.254.", "[fe80:", "[::]", "[::ffff:", "[fd00:ec2:" };
	const char *host = strstr(to, "://"), *other = strstr(from, "://");

	if (!host || !other || origin_is_loopback(other + 3))
		return false;
	host += 3;
	for (size_t i = 0; i < sizeof(here) / sizeof(here[0]); i++)
		if (text_starts(host, here[i]))
			return true;
	return origin_is_loopback(host);
}
