/* SPDX-License-Identifier: Apache-2.0 */
/* Names of processor architectures as images, Debian, the kernel and the option -a spell them, and how well an entry
 * of an image index fits (OCI image-spec 1.1, "Image Index"). */
#ifndef REGISTRY_PLATFORM_H
#define REGISTRY_PLATFORM_H

#include <stdbool.h>

struct platform {
	char architecture[32]; /* Go's name: amd64, arm64, arm, ppc64le, ... */
	char variant[16];      /* "v7", or "" */
	bool asked;            /* by -a, and not what this machine is */
};

/* `name` is what -a has, "ARCH" or "ARCH/VARIANT"; NULL: this machine's. Returns 0; -1: too long to be one. */
int platform_of(struct platform *platform, const char *name);

/* How well an entry fits: 0 not at all, else the higher the better. "" where it does not say. */
int platform_fit(const struct platform *platform, const char *os, const char *architecture, const char *variant);

#endif
