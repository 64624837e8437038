/* SPDX-License-Identifier: Apache-2.0 */
/* The IPC namespace that all steps of a job on a node share, and the PID namespace that all jobs of a user there
 * share. Both are kept as files. All functions must be called in slurmd's own mount namespace. */
#ifndef JAIL_JOB_NAMESPACES_H
#define JAIL_JOB_NAMESPACES_H

#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"

/* The IPC namespace of the job's steps, made by the first that asks and pinned in the job's directory: what they leave
 * of System V and POSIX message objects ends with the job. Returns a descriptor or -1. */
int jail_job_ipc(int directory, struct jail_error *err);

/* The PID namespace of the user's jobs on the node, made with the program `init` by the first that asks. It hides the
 * node's daemons from root inside, not the user's jobs from each other: pyxis joins their containers. Returns a
 * descriptor or -1. */
int jail_user_pids(uid_t user, const char *init, struct jail_error *err);

/* The number of that namespace's init here; 0: there is none. */
pid_t jail_user_init(uid_t user);

/* Has the processes of that namespace, whose init is `init`, end that SIGKILL does not end. */
typedef void jail_user_release(pid_t init, uid_t user);

/* How often and how long processes that got SIGKILL are waited for: most end in some milliseconds. */
#define JAIL_END_LOOKS 4
#define JAIL_END_LOOK_MS 500

/* Ends that namespace, with all processes in it, unless the node has another job of `user` than `job`, which is gone:
 * what they started ends with the last of them, whoever its parent is by then. `release` is called while they do not end.
 * Returns 0 or -1. */
int jail_user_leave(uint32_t job, uid_t user, jail_user_release *release, struct jail_error *err);

/* Pins `namespace` at the file `name` in the job's directory. Returns 0 or -1. */
int jail_job_pin(int directory, const char *name, int namespace, struct jail_error *err);
#endif
