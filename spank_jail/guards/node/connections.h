/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how many of slurmd's threads one client address can occupy. Each connection takes a thread before the client
 * is authenticated, and slurmd ends when it can start no more. */
#ifndef JAIL_CONNECTIONS_H
#define JAIL_CONNECTIONS_H

#include "native/base/error.h"

/* In slurmd. One address has a part of its threads and memory; releases of Slurm from 25.05 on have a number of threads once for
 * all. What it is to pass on to other nodes has a bound. Returns 0 or -1. */
int jail_connections_guard(struct jail_error *err);

#endif
