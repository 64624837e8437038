/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a directory of the node, such as PMIx's, to a container's mounts without the user asking. */
#ifndef PYXIS_PLACE_H
#define PYXIS_PLACE_H

#include "native/base/text.h"

/* Adds `path` at the same place in the container, if it is there; `flags` are those of --container-mounts, with ":"
 * before them, or "". What becomes of it is a line of fstab. */
void pyxis_implicit_mounts_add(const char *path, const char *flags, struct text_list *places);

#endif
