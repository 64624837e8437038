/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the URI of an image: docker://[USER@][REGISTRY(#|/)]IMAGE[:TAG][@sha256:...] */
#ifndef REGISTRY_URI_H
#define REGISTRY_URI_H

#include "error.h"

struct registry_uri {
	char user[256];   /* "" without one */
	char host[264];   /* with the port where there is one; Docker Hub is always "docker.io" */
	char path[256];   /* of the repository, with "library/" where Docker Hub wants it */
	char tag[129];    /* "" where a digest without a tag is named; else "latest" by default */
	char digest[72];  /* "sha256:..." or "" */
};

/* With `docker://` before it or without. Returns 0, or -1. */
int registry_uri_parse(struct registry_uri *uri, const char *text, struct registry_error *err);

/* Whether `text` is NAME, NAME:PORT or [ADDRESS]:PORT; whether it may be the name of a repository. */
bool registry_is_host(const char *text);
bool registry_is_path(const char *text);

/* What `import` calls its file: the image with "/" as "+", "+TAG.sqsh" behind it, no "library/". `name` takes it. */
void registry_uri_file(const struct registry_uri *uri, char name[512]);

#endif
