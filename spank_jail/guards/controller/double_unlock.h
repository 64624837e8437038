/* SPDX-License-Identifier: Apache-2.0 */
/* Ignores the second unlock of a lock that a thread of slurmctld locked once. */
#ifndef JAIL_DOUBLE_UNLOCK_H
#define JAIL_DOUBLE_UNLOCK_H

#include <link.h>

#include "native/base/error.h"

/* In slurmctld: what a thread of `program` does not hold it does not unlock. Returns 0; 1 when it has no such locks; -1. */
int jail_double_unlock_guard(const struct link_map *program, struct jail_error *err);

#endif
