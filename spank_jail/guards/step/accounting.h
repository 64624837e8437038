/* SPDX-License-Identifier: Apache-2.0 */
/* What jobacct_gather reads of a step's processes, for sstat and sacct.
 *
 * It holds a lock meanwhile that all wait for who ask slurmstepd, each with a thread of slurmd's; and a user's process that
 * executes a program keeps the readers of its stat and io waiting, for ever if a file system of his serves that.
 */
#ifndef JAIL_ACCOUNTING_H
#define JAIL_ACCOUNTING_H

#include "native/base/error.h"

/* Bounds how long it waits for a process. Returns 0 or -1. */
int jail_accounting_guard(struct jail_error *err);

#endif
