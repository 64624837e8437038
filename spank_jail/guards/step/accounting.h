/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps users' processes from blocking the accounting of a step (the plugin jobacct_gather, for sstat and sacct).
 *
 * The plugin reads /proc of the step's processes while it holds a lock for which all who ask slurmstepd wait, each
 * with a thread of slurmd. A process that executes a program keeps readers of its stat and io waiting, for ever if
 * its user's file system serves that program.
 */
#ifndef JAIL_ACCOUNTING_H
#define JAIL_ACCOUNTING_H

#include "native/base/error.h"

/* Bounds how long it waits for a process. Returns 0 or -1. */
int jail_accounting_guard(struct jail_error *err);

#endif
