/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses to which no registry may redirect the client: those of this machine and of its cloud's metadata service. */
#ifndef REGISTRY_INTERNAL_ADDRESS_H
#define REGISTRY_INTERNAL_ADDRESS_H

#include <stdbool.h>

/* Whether what came from the origin `from`, another machine, names an origin of this one, or of a service that its provider has
 * for it alone: what answers there answers to us, and not to whoever sent us. By the name; a name that is resolved to such an address
 * is not seen here. */
bool address_is_internal(const char *from, const char *to);
/* Whether a host, with or without a port, is this machine by its very name. */
bool address_is_loopback(const char *host);

#endif
