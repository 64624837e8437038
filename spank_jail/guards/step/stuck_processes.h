/* SPDX-License-Identifier: Apache-2.0 */
/* Ends what a killed process of a step waits for: a FUSE file system whose server does not answer.
 *
 * SIGKILL does not end such a process before the server ends, which may belong to no step, or to another one.
 * slurmstepd would wait for as long, and slurmctld drain the node.
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
