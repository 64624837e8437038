/* SPDX-License-Identifier: Apache-2.0 */
/* A sink before another one: all files belong to who runs this, as nobody else's can be made, or are wanted. */
#ifndef IMPORTING_OWNERS_H
#define IMPORTING_OWNERS_H

#include "native/layers/sink.h"

struct owners {
	struct image_sink to;
};

/* `owners` must outlive the sink. */
struct image_sink owners_sink(struct owners *owners, struct image_sink to);

#endif
