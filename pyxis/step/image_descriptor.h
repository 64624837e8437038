/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the cache's own file of an image instead of a copy: the import passes its path, and a descriptor whose lock
 * keeps the cache from deleting it. */
#ifndef PYXIS_IMAGE_DESCRIPTOR_H
#define PYXIS_IMAGE_DESCRIPTOR_H

#include <stdbool.h>

#include "native/base/error.h"

struct pyxis_image_descriptor {
	int ours, theirs; /* a socket's ends; the second is for what is run: pyxis_runtime_run's `inherited` */
};

#define PYXIS_IMAGE_DESCRIPTOR_NONE { -1, -1 }

/* Returns 0, or -1 with `err`. */
int pyxis_image_descriptor_begin(struct pyxis_image_descriptor *descriptor, struct jail_error *err);

/* After the program has ended: the path, a new string, `*held`, its descriptor, and whether the image was in the cache already
 * (`*found`); NULL, and -1: it handed nothing over. */
char *pyxis_image_descriptor_receive(struct pyxis_image_descriptor *descriptor, int *held, bool *found);

void pyxis_image_descriptor_end(struct pyxis_image_descriptor *descriptor);

#define scoped_image_descriptor __attribute__((cleanup(pyxis_image_descriptor_end))) struct pyxis_image_descriptor

#endif
