/* SPDX-License-Identifier: Apache-2.0 */
/* The inits of the PID namespaces that steps of a job have of their own, at level pid. slurmstepd's end is theirs, and theirs is
 * that of all in the namespace, but for a process that waits for a file system which it serves itself: the epilog finds it by
 * them. All of this file is for slurmd's own namespace.
 */
#ifndef JAIL_STEP_INITS_H
#define JAIL_STEP_INITS_H

#include "job_namespaces.h"

/* Notes an init in the job's directory, which is locked. Returns 0 or -1. */
int jail_step_init_note(int directory, pid_t init, struct jail_error *err);

/* Ends those that are noted, of a job that is over. `release` is called while they do not end; NULL: nobody waits. */
void jail_step_inits_end(int directory, uid_t user, jail_user_release *release);

#endif
