/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to slurmctld, each one message and its answer: whether a job is over, its partition, and
 * draining a node. */
#ifndef JAIL_CONTROLLER_H
#define JAIL_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "native/base/error.h"

/* Whether slurmctld says that the job has ended, or knows it no longer. No answer: it has not. */
bool jail_controller_job_is_over(uint32_t job);

/* Writes the names of the job's partition into `names`; while it waits for one of several, all of them, with commas. -1: slurmctld does not
 * answer, or knows no such job. */
int jail_controller_job_partition(uint32_t job, char *names, size_t size, struct jail_error *err);

/* Drains the node, unless it is drained: then whoever did it has given a reason already. Returns 0 or -1. */
int jail_controller_drain(const char *node, const char *reason, struct jail_error *err);

#endif
