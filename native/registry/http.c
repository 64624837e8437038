/* SPDX-License-Identifier: Apache-2.0 */
/* Sends one HTTP request and follows its redirects. Files of this folder call it. */
#define _GNU_SOURCE
#include "http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "native/base/scoped.h"
#include "connection.h"
#include "internal_address.h"
#include "origin.h"

#define REDIRECTS 5
#define ERROR_LIMIT (64 * 1024)
/* Silence after which a connection counts as broken. */
#define SILENCE_S 60L
#define RECEIVE_BUFFER (512 * 1024L)

struct http {
	struct transport *transport;
	struct transport_handle handle;
	CURLM *multi;
	CURL *easy;
	/* Of the request that runs: */
	const struct http_request *request;
	struct http_answer *answer;
	char *redirect;
	unsigned long long position;
	bool ended, too_long;
	bool identified; /* by this request, or one that was redirected to it */
};

struct http *http_open(struct transport *transport, struct registry_error *err)
{
	struct http *http = calloc(1, sizeof(*http));

	if (http)
		*http = (struct http){ .transport = transport, .multi = curl_multi_init(), .easy = curl_easy_init() };
	if (!http || !http->multi || !http->easy) {
		http_close(http);
		registry_fail(err, REGISTRY_FAULT_SYSTEM, "no memory for a connection");
		return NULL;
	}
	transport_add(transport, &http->handle, http->multi);
	return http;
}

void http_close(struct http *http)
{
	if (!http)
		return;
	transport_remove(http->transport, &http->handle);
	curl_easy_cleanup(http->easy);
	curl_multi_cleanup(http->multi);
	free(http->redirect);
	free(http);
}

struct transport *http_transport(const struct http *http)
{
	return http->transport;
}

void http_answer_free(struct http_answer *answer)
{
	text_buffer_free(&answer->body);
	text_buffer_free(&answer->challenge);
	*answer = (struct http_answer){ .retry_after_s = -1 };
}

/* The value of the header `name` when `line` is it, cut to what it says; else NULL. */
static const char *value_of(const char *line, size_t length, const char *name, size_t *size)
{
	size_t prefix = strlen(name);

	if (length <= prefix || line[prefix] != ':' || strncasecmp(line, name, prefix))
		return NULL;
	const char *value = line + prefix + 1, *end = line + length;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	while (end > value && strchr(" \t\r\n", end[-1]))
		end--;
	*size = (size_t)(end - value);
	return value;
}

static void copy(char *to, size_t capacity, const char *value, size_t size)
{
	size = size < capacity ? size : capacity - 1;
	memcpy(to, value, size);
	to[size] = '\0';
}

/* A number of seconds or a date (RFC 9110, 10.2.3). */
static double retry_after(const char *value, size_t size)
{
	char text[64], *end;

	copy(text, sizeof(text), value, size);
	unsigned long seconds = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end)
		return (double)seconds;
	time_t date = curl_getdate(text, NULL), now = time(NULL);
	return date < 0 ? -1 : date > now ? (double)(date - now) : 0;
}

static size_t take_header(char *line, size_t one, size_t length, void *context)
{
	struct http *http = context;
	struct http_answer *answer = http->answer;
	const char *value;
	size_t size;

	(void)one;
	/* Of a proxy's answer to CONNECT, and "100 Continue", nothing stays. */
	if (length > 5 && !strncmp(line, "HTTP/", 5)) {
		http_answer_free(answer);
		http->position = 0;
	} else if ((value = value_of(line, length, "WWW-Authenticate", &size))) {
		if (answer->challenge.length)
			text_append_string(&answer->challenge, ", ");
		if (answer->challenge.length < 8192)
			text_append(&answer->challenge, value, size);
	} else if ((value = value_of(line, length, "Content-Type", &size))) {
		const char *end = memchr(value, ';', size);
		copy(answer->media_type, sizeof(answer->media_type), value, end ? (size_t)(end - value) : size);
	} else if ((value = value_of(line, length, "Docker-Content-Digest", &size))) {
		copy(answer->digest, sizeof(answer->digest), value, size);
	} else if ((value = value_of(line, length, "Retry-After", &size))) {
		answer->retry_after_s = retry_after(value, size);
	} else if ((value = value_of(line, length, "Content-Range", &size))) {
		char text[64];
		copy(text, sizeof(text), value, size);
		if (!strncasecmp(text, "bytes ", 6))
			http->position = strtoull(text + 6, NULL, 10);
	}
	return length;
}

static size_t take_body(char *data, size_t one, size_t length, void *context)
{
	struct http *http = context;
	long status = 0;

	(void)one;
	curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
	if (http->request->sink && (status == 200 || status == 206)) {
		if (http->request->sink(http->request->context, http->position, data, length)) {
			http->ended = true;
			return 0;
		}
		http->position += length;
		return length;
	}
	size_t limit = status >= 300 ? ERROR_LIMIT : http->request->limit;
	if (http->answer->body.length + length > limit) {
		if (status >= 300)
			return length; /* the rest of a page that explains an error */
		http->too_long = true;
		return 0;
	}
	text_append(&http->answer->body, data, length);
	return length;
}

/* Runs the transfer; a stop ends it within a moment. */
static CURLcode perform(struct http *http)
{
	int running = 1, left;
	CURLcode result = CURLE_ABORTED_BY_CALLBACK;
	const CURLMsg *message;

	if (curl_multi_add_handle(http->multi, http->easy))
		return CURLE_OUT_OF_MEMORY;
	while (running && !atomic_load(&http->transport->stopped)) {
		if (curl_multi_perform(http->multi, &running))
			break;
		if (running && curl_multi_poll(http->multi, NULL, 0, 1000, NULL))
			break;
	}
	while ((message = curl_multi_info_read(http->multi, &left)))
		if (message->msg == CURLMSG_DONE)
			result = message->data.result;
	curl_multi_remove_handle(http->multi, http->easy);
	return result;
}

static int add(struct curl_slist **list, const char *name, const char *value)
{
	if (!value)
		return 0;
	scoped_free char *line = text_format("%s: %s", name, value);
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (!longer)
		return -1;
	*list = longer;
	return 0;
}

static int once(struct http *http, const char *url, const char *authorization, struct registry_error *err)
{
	const struct http_request *request = http->request;
	char text[CURL_ERROR_SIZE] = "", range[32];
	struct curl_slist *headers = NULL;
	bool certificate = false;
	CURL *easy = http->easy;

	curl_easy_reset(easy);
	if (connection_prepare(easy, http->transport, url, request, &certificate, err))
		return -1;
	http->identified |= certificate || ((authorization || request->form) && request->identifies);
	add(&headers, "Accept", request->accept);
	add(&headers, "Authorization", authorization);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text);
	curl_easy_setopt(easy, CURLOPT_URL, url);
	curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, http);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, http);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BUFFER);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, SILENCE_S);
	if (!request->sink && http->transport->transfer_timeout_s)
		curl_easy_setopt(easy, CURLOPT_TIMEOUT, http->transport->transfer_timeout_s);
	if (!strcmp(request->method, "HEAD"))
		curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	if (request->form)
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->form);
	if (request->offset) {
		snprintf(range, sizeof(range), "%llu-", request->offset);
		curl_easy_setopt(easy, CURLOPT_RANGE, range);
	}
	http->position = 0;
	http->ended = http->too_long = false;
	http_answer_free(http->answer);

	CURLcode result = perform(http);
	long status = 0;
	char *there = NULL;
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &there);
	free(http->redirect);
	http->redirect = there ? text_copy(there, strlen(there)) : NULL;
	http->answer->status = (int)status;
	curl_slist_free_all(headers);
	if (!result)
		return 0;
	if (http->ended || atomic_load(&http->transport->stopped))
		return registry_fail(err, REGISTRY_FAULT_STOPPED, "%s: stopped, because another part failed", request->host);
	if (http->too_long) {
		registry_fail(err, REGISTRY_FAULT_SERVER, "%s: could not %s: its answer is over %zu bytes long", request->host,
			      request->doing, request->limit);
		return registry_hint(err, "that is no manifest or token; is this a registry's address?");
	}
	return connection_failed(easy, result, text, request, err);
}

static int follow(struct http *http, const struct http_request *request, struct http_answer *answer,
		  struct registry_error *err)
{
	scoped_free char *url = text_copy(request->url, strlen(request->url));
	scoped_free char *start = origin_of(url);
	const char *authorization = request->authorization;

	for (int redirects = 0; redirects <= REDIRECTS; redirects++) {
		if (transport_pause(http->transport))
			return registry_fail(err, REGISTRY_FAULT_STOPPED, "%s: stopped", request->host);
		if (once(http, url, authorization, err))
			return -1;
		bool followed = answer->status > 300 && answer->status < 309 && answer->status != 304 && !request->form;
		if (!followed || !http->redirect)
			return 0;
		scoped_free char *here = origin_of(url), *there = origin_of(http->redirect);
		if (!start || !here || !there) {
			registry_fail(err, REGISTRY_FAULT_SERVER, "%s: could not %s: it redirects to what is no web address",
				      request->host, request->doing);
			return registry_hint(err, "look at its configuration");
		}
		if (text_starts(here, "https:") && !text_starts(there, "https:") && !request->insecure) {
			registry_fail(err, REGISTRY_FAULT_TLS, "%s: could not %s: it redirects from TLS to plain http, to %s",
				      request->host, request->doing, there);
			return registry_hint(err, "have its storage served over https, or say insecure = true for it in "
					     "registries.conf");
		}
		if (address_is_internal(start, there)) {
			registry_fail(err, REGISTRY_FAULT_SERVER, "%s: could not %s: it redirects to %s, an address of this machine or of what "
				      "looks after it", request->host, request->doing, there);
			return registry_hint(err, "have its storage reached by a name that others can ask, too");
		}
		/* Object stores take a signature in the URL, and refuse a token that is not theirs. */
		if (strcmp(here, there))
			authorization = NULL;
		free(url);
		url = text_copy(http->redirect, strlen(http->redirect));
	}
	registry_fail(err, REGISTRY_FAULT_SERVER, "%s: could not %s: more than %d redirects", request->host, request->doing,
		      REDIRECTS);
	return registry_hint(err, "look at its configuration");
}

int http_do(struct http *http, const struct http_request *request, struct http_answer *answer,
	    struct registry_error *err)
{
	*answer = (struct http_answer){ .retry_after_s = -1 };
	http->request = request;
	http->answer = answer;
	http->identified = false;
	int result = follow(http, request, answer, err);

	answer->identified = http->identified;
	if (http->identified)
		atomic_store(&http->transport->identified, true);
	return result;
}
