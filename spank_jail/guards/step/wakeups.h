/* SPDX-License-Identifier: Apache-2.0 */
/* Repeats signals of slurmstepd to a thread that may have missed one.
 *
 * The thread drains the node when a step does not end. If the step ends before the thread waits for that signal, it
 * never hears of it, and drains the node for nothing (seen with 24.11; a task that ignores SIGTERM suffices).
 */
#ifndef JAIL_WAKEUPS_H
#define JAIL_WAKEUPS_H

#include "native/base/error.h"

/* Has slurmstepd, where it wakes a thread and waits for its end, wake it again until it ends. Returns 0 or -1. */
int jail_wakeups_guard(struct jail_error *err);

#endif
