/* SPDX-License-Identifier: Apache-2.0 */
/* Closes connections to a service from hosts that are not on its list: who does not have to log in
 * there can send nothing. */
#ifndef JAIL_KNOWN_PEERS_H
#define JAIL_KNOWN_PEERS_H

#include <stdbool.h>

/* The hosts, by names with blanks between; NULL: all there are. */
void jail_peers_set(const char *names);

/* Whether who is at the other end of a connection is on one of these hosts, or on this one by a Unix socket. One thread asks. */
bool jail_peers_is_known(int fd);

#endif
