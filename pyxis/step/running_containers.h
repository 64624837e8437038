/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a running container of a name on this node, among the processes that the caller can see in /proc. */
#ifndef PYXIS_RUNNING_CONTAINERS_H
#define PYXIS_RUNNING_CONTAINERS_H

#include <sys/types.h>

#include "native/base/error.h"

/* A process in the container `name`, whose root is the directory `root` (NULL: it has none, its image is mounted): the
 * one that keeps it, or any other of it. A container whose root was removed has no name any more. 0: there is none. */
pid_t pyxis_running_container_find(const char *name, const char *root);

#endif
