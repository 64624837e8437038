/* SPDX-License-Identifier: Apache-2.0 */
/* The cache's own file of an image, instead of a file made of it: the import hands over a descriptor whose lock keeps the
 * image from being trimmed, and its path. */
#ifndef PYXIS_HANDED_OVER_H
#define PYXIS_HANDED_OVER_H

#include "native/base/error.h"

struct pyxis_handing {
	int ours, theirs; /* a socket's ends; the second is for what is run: pyxis_runtime_run's `handed` */
};

#define PYXIS_HANDING_NONE { -1, -1 }

/* Returns 0, or -1 with `err`. */
int pyxis_handing_begin(struct pyxis_handing *handing, struct jail_error *err);

/* After the program has ended: the path, a new string, and `*held`, its descriptor; NULL, and -1: it handed nothing over. */
char *pyxis_handing_take(struct pyxis_handing *handing, int *held);

void pyxis_handing_end(struct pyxis_handing *handing);

#define scoped_handing __attribute__((cleanup(pyxis_handing_end))) struct pyxis_handing

#endif
