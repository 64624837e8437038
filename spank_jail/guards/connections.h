/* SPDX-License-Identifier: Apache-2.0 */
/* Connections to slurmd: each takes a thread, before anybody knows who it is, and slurmd ends when there are no more threads. */
#ifndef JAIL_CONNECTIONS_H
#define JAIL_CONNECTIONS_H

#include "native/base/error.h"

/* In slurmd. One address has a part of its threads, and what it is to pass on to other nodes has a bound. Nothing is done with
 * releases of Slurm that have a number of threads once for all. Returns 0 or -1. */
int jail_connections_guard(struct jail_error *err);

#endif
