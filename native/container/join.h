/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the calling process a member of a container that runs already: setns(2) by a pidfd, without
 * a helper program. */
#ifndef ENROOT_JOIN_H
#define ENROOT_JOIN_H

#include <stdbool.h>

#include "native/base/error.h"

/* The kinds of namespaces (CLONE_NEW*) that process `pid` has of its own; -1: that cannot be told of each. */
int join_differing(long pid, struct jail_error *err);

/* Enters those of the process that `process`, a pidfd, stands for, and compares what it is in now with what the process `pid`
 * is in, but for a PID namespace that is not among `kinds`. The caller has one thread. */
int join_enter(int process, int kinds, long pid, struct jail_error *err);

/* What a process within may not: as `start` leaves its command. `kinds` as above. */
int join_confine(int kinds, struct jail_error *err);

#endif
