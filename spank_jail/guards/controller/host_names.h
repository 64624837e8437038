/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the time that slurmctld spends on resolving a host name that a user gave. */
#ifndef JAIL_HOST_NAMES_H
#define JAIL_HOST_NAMES_H

#include <link.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "native/base/error.h"

/* Has `slurmctld` look up hosts by what is here, but those that `is_trusted` says are its administrator's; `complain` is called when
 * there is no address of one. Returns 0; 1 when it looks them up in an unknown way; -1. */
int jail_host_names_guard(const struct link_map *slurmctld, bool (*is_trusted)(const char *host), void (*complain)(void),
			  struct jail_error *err);

/* Looks for an address of `host`, a name or an address in letters, waits half a second at most, and in all calls together a tenth
 * of the time that goes by. Returns whether there is one, with port 0. */
bool jail_host_names_find(const char *host, struct sockaddr_storage *address);

#endif
