/* SPDX-License-Identifier: Apache-2.0 */
/* Gets the image of a step's container, in the form that `enroot start` takes. */
#ifndef PYXIS_IMAGE_SOURCE_H
#define PYXIS_IMAGE_SOURCE_H

#include "container_state.h"

/* Whether no image is mounted: the administrator says so, or this node cannot. */
bool pyxis_image_is_unpacked(const struct pyxis_arguments *arguments);

/* Whether the image is a file that is mounted: nothing is written beside the user's containers. */
bool pyxis_image_is_mounted_alone(const struct pyxis_container *container);

struct pyxis_image {
	char *what;   /* the path of an image or the name of a root */
	bool passing; /* the image is to be removed when it is mounted */
	int held;     /* a descriptor that keeps the image in the cache until it is mounted, or -1 */
};

#define PYXIS_IMAGE_NONE { NULL, false, -1 }

/* Imports what is in a registry, unpacks what is to be kept. `root` is where the root will be. Returns 0 or -1. */
int pyxis_image_prepare(struct pyxis_container *container, const char *root, struct pyxis_image *image, struct jail_error *err);

/* Once it is mounted, or is not: removes what was passing. */
void pyxis_image_done(struct pyxis_image *image);

#define scoped_image __attribute__((cleanup(pyxis_image_done))) struct pyxis_image

#endif
