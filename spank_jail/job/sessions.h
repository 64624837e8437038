/* SPDX-License-Identifier: Apache-2.0 */
/* Ends login sessions of users on a node who have no job there any more. */
#ifndef JAIL_SESSIONS_H
#define JAIL_SESSIONS_H

#include <sys/types.h>

/* Ends the processes of `user` that are in the jail, whoever they are by now: those that he is, and those that he logged in
 * for. Where Slurm cannot put a session into a job (no cgroups), nobody else does. For the end of his last job here. */
void jail_sessions_end(uid_t user);

#endif
