/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses requests to slurmctld that name more jobs than any command of Slurm's sends. */
#ifndef JAIL_LONG_REQUESTS_H
#define JAIL_LONG_REQUESTS_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "native/base/error.h"

/* Whether a request of this type is longer than any of Slurm's commands sends: its body, without header and credential. */
bool jail_long_requests_is_one(uint16_t type, const unsigned char *body, uint32_t size);

/* Has Slurm's library in slurmctld refuse such requests before it reads them. Returns 0; 1 when it reads requests in an unknown
 * way; -1. */
int jail_long_requests_guard(const struct link_map *library, struct jail_error *err);

#endif
