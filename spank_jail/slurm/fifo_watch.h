/* SPDX-License-Identifier: Apache-2.0 */
/* Interrupts slurmstepd while it waits for a user's FIFO, once the job is to end.
 *
 * open(2) of a FIFO given as --input or --output waits for its other end. A job in that state could not be cancelled,
 * because it has no task to signal yet. So a process asks slurmctld whether the job is to end, and then interrupts
 * open(2). A timer starts it late: a thread in each step would cost 0.2 ms.
 */
#ifndef JAIL_FIFO_WATCH_H
#define JAIL_FIFO_WATCH_H

#include <stdint.h>

#include "native/base/error.h"

/* Watches over the calling thread, which has just entered the window, until jail_watch_stop. `home` is the mount
 * namespace in which to ask slurmctld. Returns 0 or -1. */
int jail_watch_start(uint32_t job, int home, struct jail_error *err);

/* Does nothing when nothing is watched. */
void jail_watch_stop(void);

#endif
