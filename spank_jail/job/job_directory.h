/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a job on its node, in which mounts and namespaces are kept for all steps of the job.
 *
 * It lies in the holder, a mount in slurmd's own mount namespace, where all functions here must be called. So nothing
 * of the job has to run between steps, slurmd may restart, and the directory is gone when the node goes down.
 * job_mounts.h, job_namespaces.h, job_mount_namespaces.h and spool.h say what lies there.
 */
#ifndef JAIL_JOB_DIRECTORY_H
#define JAIL_JOB_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"

#define JAIL_HOLDER "/run/cellblock/jail"

/* In the directory of a user, where the steps are noted that the user has on the node. */
#define JAIL_USER_STEPS "steps"

/* Opens the job's directory in the holder, made if missing, and holds its lock until the descriptor is
 * closed: two steps of a job may start at once. */
int jail_job_open(uint32_t job, struct jail_error *err);

/* Opens the job's directory, not locked. Returns -1 and errno where the node has none. */
int jail_job_find(uint32_t job);

/* Takes the lock of a directory that jail_job_find has opened. Returns false when somebody holds it, or the directory has
 * been removed meanwhile. */
bool jail_job_try_lock(int directory);

/* Opens, locked like that of a job, the directory for what all jobs of `user` on the node share. */
int jail_user_open(uid_t user, struct jail_error *err);

/* Notes whose job it is; its directory is locked. Returns 0 or -1. */
int jail_job_note_user(int directory, uid_t user, struct jail_error *err);

/* Whether the node has another job of `user` than `job`. */
bool jail_job_user_has_another(uint32_t job, uid_t user);

/* Marks the job as present on the node until the descriptor is closed, in whatever way slurmstepd ends.
 * The job's directory is locked. Returns the descriptor or -1. */
int jail_job_stay(int directory, struct jail_error *err);

/* Whether no process has marked the job as present. The job's directory is locked. */
bool jail_job_is_deserted(int directory);

/* Whether `fd` is the root of a mount. */
bool jail_job_is_mount(int fd);

/* Attaches the unattached `mount` at `name` in the job's directory. Returns 0 or -1. */
int jail_job_attach(int directory, const char *name, int mount, struct jail_error *err);

/* Takes the mount at `name` in the job's directory off again. Returns 0, or -1 and errno. */
int jail_job_detach(int directory, const char *name);

/* Takes the holder out of the calling thread's (private) namespace, so that it keeps no mount of another
 * job alive. No holder: nothing to do. */
int jail_holder_hide(struct jail_error *err);

#endif
