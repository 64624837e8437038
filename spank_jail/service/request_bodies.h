/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory for requests that a service, slurmrestd or sackd, is receiving before it knows who sends them. */
#ifndef JAIL_REQUEST_BODIES_H
#define JAIL_REQUEST_BODIES_H

#include <stdbool.h>
#include <stddef.h>

/* How many bytes a connection brings; 0: as requests of HTTP may have. */
void jail_bodies_limit(size_t most);

/* A connection that was accepted; what else is read is none of a request's. */
void jail_bodies_begin(int fd);
/* Before it is closed. */
void jail_bodies_forget(int fd);

/* After `bytes` were read of a connection: whether its request may be so large. */
bool jail_bodies_may_grow(int fd, size_t bytes);

#endif
