/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a user's file systems (FUSE) that somebody waits for. The kernel ends one when nobody has its /dev/fuse open any more:
 * a process that has it open itself, and waits for an answer, never closes it. SIGKILL ends neither.
 */
#ifndef JAIL_FUSE_CONNECTIONS_H
#define JAIL_FUSE_CONNECTIONS_H

#include <sys/types.h>

/* Of those that somebody waits for: what `user` mounted, and what the waiting threads of `pid` see or serve. Never what the node
 * has mounted itself. For root, whose mounts are not told from the node's, the process alone decides. Without CAP_SYS_ADMIN
 * nothing happens. */
void jail_fuse_connections_abort(pid_t pid, uid_t user);

#endif
