/* SPDX-License-Identifier: Apache-2.0 */
/* Limits how many connections to a service one client address can hold. These services serve some connections at a
 * time, and wait for each client for ever. */
#ifndef JAIL_SERVICE_CONNECTIONS_H
#define JAIL_SERVICE_CONNECTIONS_H

#include <stddef.h>

/* How many connections stay open; 0: any number. */
void jail_service_connections_limit(size_t most);

/* A connection that the service has accepted. Ends another one where there are more than the limit: one on which nothing was
 * said, or one of the address that has most; on this node, of the user. */
void jail_service_connections_add(int fd);

/* Before the service closes it. */
void jail_service_connections_remove(int fd);

#endif
