/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the credential for a registry where enroot, docker, podman and skopeo keep them.
 *
 * The order: CONFIG_PATH/.credentials, the file of REGISTRY_AUTH_FILE, podman's auth.json of the session and of the
 * user, docker's config.json (containers-auth.json(5)). Each may name a program that is asked for the password.
 */
#ifndef REGISTRY_CREDENTIAL_SEARCH_H
#define REGISTRY_CREDENTIAL_SEARCH_H

#include "credential.h"

/* Never fails: what could not be read or run is told in `places`, and the next place asked. */
void credential_find(struct credential *credential, const struct credential_request *request);
void credential_free(struct credential *credential);

#endif
