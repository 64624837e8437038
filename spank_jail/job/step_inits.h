/* SPDX-License-Identifier: Apache-2.0 */
/* The first processes (inits) of the PID namespaces that steps have of their own, at level pid.
 *
 * When an init ends, so do all processes of its namespace, except one that waits for a FUSE file system that it
 * serves itself. The job's epilog finds that one by the noted init. All functions must be called in slurmd's own
 * mount namespace.
 */
#ifndef JAIL_STEP_INITS_H
#define JAIL_STEP_INITS_H

#include "job_namespaces.h"

/* Notes an init in the job's directory, which is locked. Returns 0 or -1. */
int jail_step_init_note(int directory, pid_t init, struct jail_error *err);

/* Ends those that are noted, of a job that is over. `release` is called while they do not end; NULL: nobody waits. */
void jail_step_inits_end(int directory, uid_t user, jail_user_release *release);

#endif
