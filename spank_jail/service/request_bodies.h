/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the bodies of requests to a service of HTTP that reads them before it knows who asks. */
#ifndef JAIL_REQUEST_BODIES_H
#define JAIL_REQUEST_BODIES_H

#include <stdbool.h>
#include <stddef.h>

/* A connection that was accepted; what else is read is none of a request's. */
void jail_bodies_begin(int fd);
/* Before it is closed. */
void jail_bodies_forget(int fd);

/* After `bytes` were read of a connection: whether its request may be so large. */
bool jail_bodies_may_grow(int fd, size_t bytes);

#endif
