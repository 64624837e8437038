/* SPDX-License-Identifier: Apache-2.0 */
/* Makes Slurm's plugin proctrack/linuxproc find all processes of a step at its end.
 *
 * The plugin spares processes that are called slurmstepd, and dead ones. A user can name his processes so, make a
 * process look dead whose threads go on, and keep a dead one by tracing it. slurmstepd would wait for it, and
 * slurmctld drain the node.
 */
#ifndef JAIL_PROCESS_TREE_H
#define JAIL_PROCESS_TREE_H

#include <stddef.h>
#include <sys/types.h>

#include "native/base/error.h"

/* Lets it find and end all processes of a step of `owner`. Where another plugin tracks processes, nothing is done. Returns 0 or -1. */
int jail_process_tree_guard(uid_t owner, struct jail_error *err);

/* The start of a proc_pid_stat(5), up to the parent, for a proc_pid_status(5): names have no character that splits them, only
 * the node's own process is called slurmstepd, and one that must be ended is not dead. Returns its length; 0: it is no status. */
size_t jail_process_tree_stat(const char *status, char *text, size_t size);

#endif
