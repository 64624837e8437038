/* SPDX-License-Identifier: Apache-2.0 */
/* Extracts the origin of a URL: its scheme, host and port. */
#ifndef REGISTRY_ORIGIN_H
#define REGISTRY_ORIGIN_H

/* "scheme://host:port" of a URL, which the caller frees; NULL: it is no URL of http. */
char *origin_of(const char *url);

#endif
