/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses messages that make slurmctld, slurmd or slurmdbd allocate huge arrays. */
#ifndef JAIL_ARRAY_SIZES_H
#define JAIL_ARRAY_SIZES_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>

#include "native/base/error.h"

/* Whether an array of `count` elements of `size` bytes each is one that a message can fill. */
bool jail_array_fits(size_t count, size_t size);

/* Lets Slurm's library `libslurm` refuse messages with others. Returns 0; 1 when it makes arrays in an unknown way; -1. */
int jail_array_sizes_guard(const struct link_map *libslurm, struct jail_error *err);

#endif
