/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses ranges of numbers with a step, such as "0-7:2", that are longer than what they are for. */
#ifndef JAIL_BIT_RANGES_H
#define JAIL_BIT_RANGES_H

#include <link.h>
#include <stdbool.h>

#include "native/base/error.h"

/* Whether `text` is without a step, or one range of numbers below `end` with a step. */
bool jail_bit_ranges_fit(const char *text, long end);

/* Lets `slurmctld` refuse ranges with a step that its bitmap does not have. Returns 0; 1 when it reads them in an unknown way; -1. */
int jail_bit_ranges_guard(const struct link_map *slurmctld, struct jail_error *err);

#endif
