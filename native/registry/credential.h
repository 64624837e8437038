/* SPDX-License-Identifier: Apache-2.0 */
/* A registry's user name and password or token, with where it was found, and what it is looked for by. */
#ifndef REGISTRY_CREDENTIAL_H
#define REGISTRY_CREDENTIAL_H

#include "native/settings/settings.h"

struct credential {
	char *username, *secret;  /* NULL: none was found. With `identity_token` username is "" */
	bool identity_token;      /* the secret is an OAuth 2 refresh token */
	char *source;             /* where it was found, for a person */
	struct text_buffer places; /* where it was looked for: "\n    - PLACE" each */
};

struct credential_request {
	const struct settings *settings;
	const char *host;       /* of the registry, as the URI has it */
	const char *path;       /* of the repository */
	const char *user;       /* whom the URI names, or "" */
	const char *realm_host; /* of the token server, or NULL */
};

/* Seconds that a program has which is asked for credentials; 0: any number. */
unsigned credential_patience(const struct credential_request *request);

/* Adds a place, or to the last one. */
void credential_place(struct credential *credential, const char *format, ...) __attribute__((format(printf, 2, 3)));
void credential_remark(struct credential *credential, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether `user` may be taken; remarks it when not. */
bool credential_is_for(struct credential *credential, const struct credential_request *request, const char *user);

/* The other names of Docker Hub, `host` itself first; NULL behind the last. */
const char *const *credential_hosts(const char *host, const char *own[5]);

#endif
