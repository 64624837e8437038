/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an image of the container for --container-save, at the end of the step. */
#ifndef PYXIS_SAVE_H
#define PYXIS_SAVE_H

#include "container_state.h"

/* At the beginning of the step: looks at what there is. */
void pyxis_save_prepare(struct pyxis_container *container);

/* Exports the container, and tells the user how that went. Each node of a step saves its own; where nodes name one file,
 * because they share the directory, it becomes the first node's. A container that was removed while the step ran is not
 * saved, nor is another one that got its name. */
void pyxis_save(struct pyxis_container *container);

#endif
