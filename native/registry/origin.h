/* SPDX-License-Identifier: Apache-2.0 */
/* The origin of a URL: its scheme, host and port. */
#ifndef REGISTRY_ORIGIN_H
#define REGISTRY_ORIGIN_H

#include <stdbool.h>

/* "scheme://host:port" of a URL, which the caller frees; NULL: it is no URL of http. */
char *origin_of(const char *url);
/* Whether what came from the origin `from`, another machine, names an origin of this one, or of a service that its provider has
 * for it alone: what answers there answers to us, and not to whoever sent us. By the name; a name that is resolved to such an address
 * is not seen here. */
bool origin_leads_home(const char *from, const char *to);
/* Whether a host, with or without a port, is this machine by its very name. */
bool origin_is_loopback(const char *host);

#endif
