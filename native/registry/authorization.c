/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the Authorization header for a registry: a user and password, or a token that it gets from the registry's
 * token server. endpoint.c calls it. */
#define _GNU_SOURCE
#include "authorization.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "error_response.h"
#include "auth_file.h"
#include "internal_address.h"
#include "origin.h"

/* What a token server means that names no lifetime (token specification). */
#define LIFETIME_S 60.0
/* A token is asked anew this long before it ends, or at nine tenths of a short life: a request takes time. */
#define MARGIN_S 10.0
#define TOKEN_LIMIT ((size_t)1024 * 1024)

static void unlock(pthread_mutex_t **lock)
{
	pthread_mutex_unlock(*lock);
}
#define scoped_lock(mutex)                                                               \
	__attribute__((cleanup(unlock), unused)) pthread_mutex_t *scoped_lock_held = (mutex); \
	pthread_mutex_lock(scoped_lock_held)

void authorization_begin(struct authorization *authorization)
{
	pthread_mutex_init(&authorization->lock, NULL);
}

static void forget(struct authorization *authorization)
{
	if (authorization->header)
		explicit_bzero(authorization->header, strlen(authorization->header));
	free(authorization->header);
	authorization->header = NULL;
}

void authorization_end(struct authorization *authorization)
{
	forget(authorization);
	credential_free(&authorization->credential);
	pthread_mutex_destroy(&authorization->lock);
}

/* "https://auth.example:443" to "auth.example". */
static char *host_of_origin(const char *origin)
{
	const char *host = strstr(origin, "://") + 3, *port = strrchr(host, ':');

	return text_copy(host, port ? (size_t)(port - host) : strlen(host));
}

static const struct credential *search(struct authorization *authorization, const char *realm_host)
{
	const struct credential_request request = {
		.settings = authorization->settings,
		.host = authorization->host,
		.path = authorization->path,
		.user = authorization->user,
		.realm_host = realm_host,
	};

	if (!authorization->searched)
		credential_find(&authorization->credential, &request);
	authorization->searched = true;
	return &authorization->credential;
}

static int missing(const struct authorization *authorization, const char *what, struct registry_error *err)
{
	const char *host = authorization->host;

	registry_fail(err, REGISTRY_FAULT_CREDENTIALS, "%s: %s\n  credentials for %s were looked for in:%s", host, what, host,
		      authorization->credential.places.text);
	err->status = 401;
	return registry_hint(err, "put \"machine %s login USER password PASSWORD\" into %s/.credentials (mode 0600), or log in "
			     "with podman, docker or skopeo login %s", host,
			     settings_get(authorization->settings, "ENROOT_CONFIG_PATH"), host);
}

static int not_accepted(const struct authorization *authorization, const char *server, struct registry_error *err)
{
	const struct credential *credential = &authorization->credential;

	registry_fail(err, REGISTRY_FAULT_DENIED, "%s: %s%s does not accept %s and the secret from %s", authorization->host,
		      server ? "its token server " : "it", server ? server : "",
		      *credential->username ? credential->username : "the holder of an identity token", credential->source);
	err->status = 401;
	return registry_hint(err, "correct it there, or log in again: skopeo login %s", authorization->host);
}

/* Credentials go over plain http where the user asked for it, and on this machine. */
static int not_in_the_clear(const struct authorization *authorization, const struct http *http, const char *url,
			    struct registry_error *err)
{
	const struct transport *transport = http_transport(http);
	scoped_free char *origin = origin_of(url);
	const char *host = origin ? strstr(origin, "://") + 3 : "";

	if (text_starts(url, "https:") || transport->allow_http || authorization->insecure || address_is_loopback(host))
		return 0;
	registry_fail(err, REGISTRY_FAULT_TLS, "%s: it asks for credentials to be sent to %s over plain http",
		      authorization->host, host);
	return registry_hint(err, "have its token server reached over https; or insecure = true for it in registries.conf");
}

static char *basic(const struct credential *credential)
{
	scoped_free char *pair = text_format("%s:%s", credential->username, credential->secret);
	scoped_free char *encoded = base64_encode(pair, strlen(pair));
	char *header = text_format("Basic %s", encoded);

	explicit_bzero(pair, strlen(pair));
	explicit_bzero(encoded, strlen(encoded));
	return header;
}

static void append_escaped(struct text_buffer *buffer, const char *name, const char *value)
{
	char *escaped = curl_easy_escape(NULL, value, 0);

	if (buffer->length)
		text_append_string(buffer, "&");
	text_append_string(buffer, name);
	text_append_string(buffer, "=");
	text_append_string(buffer, escaped ? escaped : "");
	curl_free(escaped);
}

/* What the token server is asked, as a query or form. */
static void append_scope(const struct authorization *authorization, struct text_buffer *text)
{
	scoped_free char *scope = text_format("repository:%s:pull", authorization->path);

	if (authorization->challenge.service[0])
		append_escaped(text, "service", authorization->challenge.service);
	append_escaped(text, "scope", scope);
}

static int request_token(struct authorization *authorization, struct http *http, const char *realm, struct http_answer *answer,
			 struct registry_error *err)
{
	const struct credential *credential = &authorization->credential;
	scoped_free char *doing = text_format("get a token for %s", authorization->path);
	scoped_buffer parameters = { 0 };
	struct http_request request = {
		.host = authorization->host, .doing = doing, .method = "GET", .limit = TOKEN_LIMIT,
		.insecure = authorization->insecure, .identifies = credential->secret,
	};

	append_scope(authorization, &parameters);
	if (credential->identity_token) {
		append_escaped(&parameters, "grant_type", "refresh_token");
		append_escaped(&parameters, "refresh_token", credential->secret);
		append_escaped(&parameters, "client_id", "enroot");
		request.method = "POST";
		request.form = parameters.text;
		request.url = realm;
		return http_do(http, &request, answer, err);
	}
	scoped_free char *url = text_format("%s%s%s", realm, strchr(realm, '?') ? "&" : "?", parameters.text);
	scoped_free char *header = credential->secret ? basic(credential) : NULL;
	request.url = url;
	request.authorization = header;
	return http_do(http, &request, answer, err);
}

static int take_token(struct authorization *authorization, const struct http_answer *answer, double asked,
		      const char *server, struct registry_error *err)
{
	json_t *data = answer->body.length ? json_loadb(answer->body.text, answer->body.length, 0, NULL) : NULL;
	const char *token = json_string_value(json_object_get(data, "token"));
	double lifetime = json_number_value(json_object_get(data, "expires_in"));

	if (!token || !*token)
		token = json_string_value(json_object_get(data, "access_token"));
	if (lifetime <= 0)
		lifetime = LIFETIME_S;
	/* It becomes a header: a line end in it would begin another. */
	if (token && *token && !strpbrk(token, "\r\n")) {
		forget(authorization);
		authorization->header = text_format("Bearer %s", token);
		authorization->good_until = asked + lifetime - (lifetime / 10 < MARGIN_S ? lifetime / 10 : MARGIN_S);
		json_decref(data);
		return 0;
	}
	json_decref(data);
	registry_fail(err, REGISTRY_FAULT_SERVER, "%s: the answer of its token server %s holds no token", authorization->host,
		      server);
	return registry_hint(err, "is this the registry's address?");
}

static int fetch_token(struct authorization *authorization, struct http *http, struct registry_error *err)
{
	struct retries retries = { .transport = http_transport(http) };
	const char *realm = authorization->challenge.realm;
	scoped_free char *url = *realm == '/' ? text_format("%s%s", authorization->base, realm) : text_copy(realm, strlen(realm));
	scoped_free char *origin = origin_of(url);

	if (!origin) {
		registry_fail(err, REGISTRY_FAULT_SERVER, "%s: its token server \"%.100s\" is no web address", authorization->host,
			      realm);
		jail_one_line(err->message);
		return registry_hint(err, "look at its configuration");
	}
	if (address_is_internal(authorization->base, origin)) {
		registry_fail(err, REGISTRY_FAULT_SERVER, "%s: its token server %s is an address of this machine", authorization->host, origin);
		return registry_hint(err, "look at its configuration");
	}
	scoped_free char *server = host_of_origin(origin);
	const struct credential *credential = search(authorization, server);
	if (credential->secret && not_in_the_clear(authorization, http, url, err))
		return -1;
	for (;;) {
		double asked = transport_now();
		scoped_answer answer = { 0 };
		int result = request_token(authorization, http, url, &answer, err);
		if (!result && answer.status < 300) {
			authorization->identified = answer.identified;
			return take_token(authorization, &answer, asked, server, err);
		}
		if (!result && (answer.status == 401 || answer.status == 403)) {
			if (credential->secret)
				return not_accepted(authorization, server, err);
			scoped_free char *what = text_format("its token server %s asks for credentials, and none were found",
							     server);
			return missing(authorization, what, err);
		}
		if (!result) {
			scoped_free char *doing = text_format("get a token for %s from %s", authorization->path, server);
			error_response_fail(authorization->host, doing, &answer, err);
		}
		if (retries_wait(&retries, err))
			return -1;
	}
}

int authorization_header(struct authorization *authorization, struct http *http, char **header, bool *identifies,
			 struct registry_error *err)
{
	scoped_lock(&authorization->lock);
	*header = NULL;
	*identifies = false;
	if (authorization->challenge.scheme == CHALLENGE_NONE)
		return 0;
	bool bearer = authorization->challenge.scheme == CHALLENGE_BEARER;
	if (bearer && authorization->header && authorization->good_until < transport_now())
		forget(authorization);
	if (bearer && !authorization->header && fetch_token(authorization, http, err))
		return -1;
	if (!bearer && !authorization->header) {
		const struct credential *credential = search(authorization, NULL);
		if (!credential->secret || credential->identity_token)
			return missing(authorization, "it wants a user and a password, and there are none", err);
		if (not_in_the_clear(authorization, http, authorization->base, err))
			return -1;
		authorization->header = basic(credential);
		authorization->identified = true;
	}
	*identifies = authorization->identified;
	*header = text_copy(authorization->header, strlen(authorization->header));
	return 0;
}

int authorization_challenged(struct authorization *authorization, const char *header, const struct http_answer *answer,
			     struct registry_error *err)
{
	scoped_lock(&authorization->lock);
	struct challenge challenge;

	challenge_parse(&challenge, answer->challenge.text ? answer->challenge.text : "");
	if (challenge.scheme == CHALLENGE_NONE) {
		registry_fail(err, REGISTRY_FAULT_DENIED, "%s: it asks for an authentication that enroot does not know: %.100s",
			      authorization->host, answer->challenge.text ? answer->challenge.text : "it names none");
		jail_one_line(err->message);
		err->status = 401;
		return registry_hint(err, "basic and bearer authentication are supported; is this address a registry's?");
	}
	/* Another thread may have a newer one already. */
	bool same = authorization->header && header && !strcmp(authorization->header, header);
	bool was_basic = authorization->challenge.scheme == CHALLENGE_BASIC;
	authorization->challenge = challenge;
	if (same && was_basic && challenge.scheme == CHALLENGE_BASIC)
		return 0;
	if (same)
		forget(authorization);
	return 1;
}

int authorization_refused(struct authorization *authorization, const char *doing, const struct http_answer *answer,
			  struct registry_error *err)
{
	scoped_lock(&authorization->lock);
	const struct credential *credential = search(authorization, NULL);
	char said[400], what[600];

	error_response_line(answer, said);
	snprintf(what, sizeof(what), "could not %.100s: %d%s%s", doing, answer->status, *said ? ", " : "", said);
	bool asked = authorization->challenge.scheme != CHALLENGE_NONE;
	if (!credential->secret && (answer->status == 401 || asked))
		return missing(authorization, what, err);
	if (answer->status == 401 && authorization->challenge.scheme == CHALLENGE_BASIC)
		return not_accepted(authorization, NULL, err);
	registry_fail(err, REGISTRY_FAULT_DENIED, "%s: %s", authorization->host, what);
	err->status = answer->status;
	if (!asked)
		return registry_hint(err, "ask who runs %s why it refuses: it did not ask who we are", authorization->host);
	size_t used = strlen(err->message);
	snprintf(err->message + used, sizeof(err->message) - used, " (asked as %s, from %s)",
		 *credential->username ? credential->username : "the holder of an identity token", credential->source);
	return registry_hint(err, "ask for the right to pull %s, or log in as somebody who has it: skopeo login %s",
			     authorization->path, authorization->host);
}
