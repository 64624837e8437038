/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a registry's credential in docker's config.json or podman's auth.json (containers-auth.json(5)). */
#ifndef REGISTRY_AUTH_FILE_H
#define REGISTRY_AUTH_FILE_H

#include "credential.h"

/* Looks in `text`, the content of `path`, and asks the programs that it names. Returns whether `credential` is found. */
bool auth_file_find(struct credential *credential, const struct credential_request *request, const char *path,
		    const char *text);

/* base64 (RFC 4648, 4) without line ends; the caller frees it. The decoded one is terminated; NULL: it is none. */
char *base64_encode(const char *text, size_t length);
char *base64_decode(const char *text);

#endif
