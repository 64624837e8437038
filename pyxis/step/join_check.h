/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a running container has what a step's options ask for, before the step joins it. */
#ifndef PYXIS_JOIN_CHECK_H
#define PYXIS_JOIN_CHECK_H

#include "container_state.h"

/* `container->member` is a process in it. What cannot be had any more (namespaces, root's id, the home, mounts, whether the root can
 * be written) must be there as it is asked for; what is not asked for may be as it is. Returns 0 or -1. */
int pyxis_join_check(const struct pyxis_container *container, struct jail_error *err);

#endif
