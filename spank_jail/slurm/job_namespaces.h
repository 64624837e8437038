/* What a job's steps on a node share besides mounts (job_mounts.h): namespaces that are pinned in the job's directory and
 * end with the job. All of this file is for slurmd's own namespace, with the job's directory locked.
 */
#ifndef JAIL_JOB_NAMESPACES_H
#define JAIL_JOB_NAMESPACES_H

#include "../core/error.h"

/* The IPC namespace of the job's steps, made by the first that asks and pinned in the job's directory: what they leave
 * of System V and POSIX message objects ends with the job. Returns a descriptor or -1. */
int jail_job_ipc(int directory, struct jail_error *err);

/* The PID namespace of the job's steps, made with the program `init` by the first that asks: what they start ends with
 * the job, whoever its parent is by then. Returns a descriptor or -1. */
int jail_job_pids(int directory, const char *init, struct jail_error *err);

/* Pins `namespace` at the file `name` in the job's directory. Returns 0 or -1. */
int jail_job_pin(int directory, const char *name, int namespace, struct jail_error *err);

/* Ends the PID namespace with all processes in it, if there is one. */
void jail_job_pids_end(int directory);

#endif
