/* SPDX-License-Identifier: Apache-2.0 */
/* Wakes slurmstepd's thread that drains the node when a step does not end. It is started with the SIGKILL for the
 * step; when the step ends before the thread waits to be told so, it never hears of it (seen with 24.11: a task that ignores SIGTERM is enough).
 */
#ifndef JAIL_WAKEUPS_H
#define JAIL_WAKEUPS_H

#include "native/base/error.h"

/* Has slurmstepd, where it wakes a thread and waits for its end, wake it again until it ends. Returns 0 or -1. */
int jail_wakeups_guard(struct jail_error *err);

#endif
