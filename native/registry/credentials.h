/* Credentials for a registry, from where enroot, docker, podman and skopeo keep them.
 *
 * In this order: CONFIG_PATH/.credentials, the file of REGISTRY_AUTH_FILE, podman's auth.json of the session and of the
 * user, docker's config.json (containers-auth.json(5)). Each may name a program that knows them.
 */
#ifndef REGISTRY_CREDENTIALS_H
#define REGISTRY_CREDENTIALS_H

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

/* Never fails: what could not be read or run is told in `places`, and the next place asked. */
void credential_find(struct credential *credential, const struct credential_request *request);
void credential_free(struct credential *credential);

/* Seconds that a program has which is asked for credentials; 0: any number. */
unsigned credential_patience(const struct credential_request *request);

/* For the parts of the search: adds a place, or to the last one. */
void credential_place(struct credential *credential, const char *format, ...) __attribute__((format(printf, 2, 3)));
void credential_remark(struct credential *credential, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Whether `user` may be taken; remarks it when not. */
bool credential_is_for(struct credential *credential, const struct credential_request *request, const char *user);

/* The other names of Docker Hub, `host` itself first; NULL behind the last. */
const char *const *credential_hosts(const char *host, const char *own[5]);

#endif
