/* SPDX-License-Identifier: Apache-2.0 */
/* Reads registries.conf as skopeo and podman do (containers-registries.conf(5), version 2): under which host names a
 * repository is found, and which mirrors it has. */
#ifndef REGISTRY_REGISTRIES_H
#define REGISTRY_REGISTRIES_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "uri.h"

#define REGISTRIES_MAX_PLACES 16

/* One place to ask. */
struct registries_place {
	char host[264], path[512];
	bool insecure;
	bool is_mirror;
};

struct registries_answer {
	struct registries_place places[REGISTRIES_MAX_PLACES]; /* mirrors first, in their order; the registry itself last */
	unsigned n;
};

struct registries; /* what the files say */

struct registries *registries_new(void);
void registries_free(struct registries *registries);

/* Adds the content of one file, `name` in errors: an entry replaces an earlier one of the same prefix. Returns 0 or -1. */
int registries_add(struct registries *registries, const char *text, const char *name, struct registry_error *err);

/* Adds the files of this machine and user. Returns 0 or -1. */
int registries_load(struct registries *registries, struct registry_error *err);

/* Where the image is. Returns 0, or -1: it is blocked. */
int registries_find(const struct registries *registries, const struct registry_uri *uri, struct registries_answer *answer,
		    struct registry_error *err);

#endif
