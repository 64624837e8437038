/* SPDX-License-Identifier: Apache-2.0 */
/* Exports images from Docker's daemon or from podman, with the programs docker and podman. */
#ifndef IMPORTING_DAEMON_H
#define IMPORTING_DAEMON_H

#include "image_files.h"

/* The archive that `docker save` or `podman save` writes. `uri`: dockerd://IMAGE or podman://IMAGE. */
struct image_files *daemon_save(const char *uri, const struct settings *settings, struct jail_error *err);

/* What the file of an image is called: "/" as "+", "+TAG" behind it, no "library/". The caller frees it. */
char *daemon_image_name(const char *image);

#endif
