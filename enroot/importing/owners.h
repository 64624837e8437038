/* SPDX-License-Identifier: Apache-2.0 */
/* Gives all files of an image to the user who imports it, before they are written: no others can
 * be made without privileges. */
#ifndef IMPORTING_OWNERS_H
#define IMPORTING_OWNERS_H

#include "native/layers/sink.h"

struct owners {
	struct image_sink to;
};

/* `owners` must outlive the sink. */
struct image_sink owners_sink(struct owners *owners, struct image_sink to);

#endif
