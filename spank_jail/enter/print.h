/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a mount plan as it was understood, for `jail-enter --print`. */
#ifndef JAIL_PRINT_H
#define JAIL_PRINT_H

#include <stdio.h>

#include "native/mount/isolation_level.h"
#include "native/mount/plan.h"

/* Writes one line an entry, in the plan's own form and with defaults spelled out, after a comment that
 * names the level. From capabilities up a sysfs is printed as it will be, read-only. */
void jail_print(FILE *stream, const struct jail_plan *plan, enum jail_level level);

#endif
