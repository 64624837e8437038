/* SPDX-License-Identifier: Apache-2.0 */
/* What a job's steps on a node share: the mounts marked x-jail.per-job, such as its /tmp.
 *
 * The mount table of slurmd's own namespace holds them, at HOLDER/JOB/TARGET: the first step makes the
 * mount, each takes a clone, and the job's epilog takes them away. Nothing of the job has to stay alive
 * between steps, slurmd may restart, and a node that goes down takes them with it. job_mount_namespaces.h keeps more there.
 */
#ifndef JAIL_JOB_MOUNTS_H
#define JAIL_JOB_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"
#include "native/mount/plan.h"

#define JAIL_HOLDER "/run/cellblock/jail"

/* Opens the job's directory in the holder, made if missing, and holds its lock until the descriptor is
 * closed: two steps of a job may start at once. All of this file is for slurmd's own namespace. */
int jail_job_open(uint32_t job, struct jail_error *err);

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

/* Attaches the unattached `mount` at `name` in the job's directory. Returns 0 or -1. */
int jail_job_attach(int directory, const char *name, int mount, struct jail_error *err);

/* Takes the mount at `name` in the job's directory off again. Returns 0, or -1 and errno. */
int jail_job_detach(int directory, const char *name);

/* One mount for each plan entry, for jail_tree_apply: a clone of the per-job mount, which is made if it
 * is not there, or -1 for other entries. NULL on failure, with nothing left open. */
int *jail_job_mounts_take(int directory, const struct jail_plan *plan, struct jail_error *err);

/* Closes what jail_tree_apply has not used. `mounts` may be NULL. */
void jail_job_mounts_close(int *mounts, const struct jail_plan *plan);

/* Takes the holder out of the calling thread's (private) namespace, so that it keeps no mount of another
 * job alive. No holder: nothing to do. */
int jail_job_mounts_hide(struct jail_error *err);

/* Ends all mounts in the job's directory, which is left empty. Returns 0 or -1. */
int jail_job_mounts_clear(int directory, struct jail_error *err);

/* Ends all mounts of the job on this node (epilog). None: nothing to do. */
int jail_job_mounts_release(uint32_t job, struct jail_error *err);

/* The same for every job that nobody is present of and that `is_over` confirms: what a node keeps of jobs
 * that had no epilog here. One that is busy is left for another time. Returns 0, or -1 and the last error. */
int jail_job_mounts_sweep(bool (*is_over)(uint32_t job), struct jail_error *err);

#endif
