/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a container for a command of enroot. Returns only when that fails. */
#ifndef ENROOT_START_H
#define ENROOT_START_H

#include "container.h"

/* Does all steps in order and becomes the command. Returns only after a failure, the exit status: 127 when there is no
 * such command in the container, 126 when it cannot be run, else 1. */
int container_start(struct container *container);

#endif
