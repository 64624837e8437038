/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the waiting of slurmstepd for a user, in the window.
 *
 * A FIFO that a user gives as --input or --output is opened when somebody opens its other end. Until then
 * slurmstepd waits in open(2), as on any node; but there it cannot be cancelled: no task is there to be
 * signalled. A process looks on, and interrupts open(2) when slurmctld says that the job is to end. It is started by
 * a timer, after a time that opening usually does not take: a thread of each step would cost it 0.2 ms, for glibc
 * tells every thread of each change of user.
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
