/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that SIGKILL does not end, for they wait for an answer of a file system that a user serves (FUSE). The kernel gives
 * up the wait when whoever serves has ended, which may be a process of no step, or of another one: slurmstepd would wait for as
 * long, and slurmctld drain the node.
 */
#ifndef JAIL_STUCK_PROCESSES_H
#define JAIL_STUCK_PROCESSES_H

#include <stdbool.h>
#include <sys/types.h>

/* In slurmstepd, for a process of the step that is about to get SIGKILL, for the first time or once more. When the first has not
 * ended it for some seconds, what `user` left on the node outside of steps is ended; later, what of his other jobs may serve a
 * file system, and the connections of those that he mounted: the process may serve itself. Returns whether it was so long. */
bool jail_stuck_release(pid_t pid, uid_t user);

/* In the epilog, when SIGKILL has not ended the PID namespace of the user's jobs, whose init is `init`: ends the file systems that
 * its processes wait for. */
void jail_stuck_leave(pid_t init, uid_t user);

#endif
