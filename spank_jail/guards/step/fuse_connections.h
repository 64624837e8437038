/* SPDX-License-Identifier: Apache-2.0 */
/* Aborts a user's FUSE file systems on which somebody waits. The kernel does it by itself when nobody has their
 * /dev/fuse open: a process that has it open and waits for the same file system never closes it, and SIGKILL does not
 * end it. */
#ifndef JAIL_FUSE_CONNECTIONS_H
#define JAIL_FUSE_CONNECTIONS_H

#include <sys/types.h>

/* Of those that somebody waits for: what `user` mounted, and what the waiting threads of `pid` see or serve. Never what the node
 * has mounted itself. For root, whose mounts are not told from the node's, the process alone decides. Without CAP_SYS_ADMIN
 * nothing happens. */
void jail_fuse_connections_abort(pid_t pid, uid_t user);

#endif
