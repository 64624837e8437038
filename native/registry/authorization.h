/* SPDX-License-Identifier: Apache-2.0 */
/* The Authorization header: a user and password (basic, RFC 7617), or a bearer token from the registry's token
 * server.
 *
 * Tokens follow docker's token specification (GET with basic) or its OAuth 2 variant (POST with an identity token). A
 * token is kept until it expires. Threads may share an authorization.
 */
#ifndef REGISTRY_AUTHORIZATION_H
#define REGISTRY_AUTHORIZATION_H

#include "challenge.h"
#include "credential_search.h"
#include "http.h"

struct authorization {
	const struct settings *settings;
	const char *host, *path, *user; /* of the registry; whom the URI names, or "" */
	const char *base;               /* "https://HOST" that the registry answered at */
	bool insecure;
	pthread_mutex_t lock;
	struct challenge challenge; /* of the last 401 */
	bool searched;
	struct credential credential;
	char *header;       /* "Bearer ..." or "Basic ...", or NULL */
	bool identified;    /* it took somebody's credentials or certificate to get it */
	double good_until;  /* by transport_now */
};

void authorization_begin(struct authorization *authorization);
void authorization_end(struct authorization *authorization);

/* `*header` is what requests need, which the caller frees; NULL while the registry has not asked. `*identifies`: it says who
 * asks. Returns 0 or -1. */
int authorization_header(struct authorization *authorization, struct http *http, char **header, bool *identifies,
			 struct registry_error *err);

/* Takes note of a 401 that came to a request with `header` (or NULL): it holds no longer. Returns 1: another request may
 * be tried. 0: it cannot change anything. -1: it asks for what is not known here. */
int authorization_challenged(struct authorization *authorization, const char *header, const struct http_answer *answer,
			     struct registry_error *err);

/* The error for a 401 or 403 that stays; returns -1. */
int authorization_refused(struct authorization *authorization, const char *doing, const struct http_answer *answer,
			  struct registry_error *err);

#endif
