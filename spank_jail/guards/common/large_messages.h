/* SPDX-License-Identifier: Apache-2.0 */
/* Limits the memory of a daemon of Slurm for messages whose sender it has not authenticated yet. */
#ifndef JAIL_LARGE_MESSAGES_H
#define JAIL_LARGE_MESSAGES_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "native/base/error.h"

/* Lets the daemon `program`, and Slurm's library in it, end connections by which one address has more than 128 MiB of messages
 * on their way, or all together 512 MiB; a single message may be as large as Slurm takes. `refused`, if not NULL, says of the
 * beginning of a message whether nothing of it is to be read; a daemon that reads the length alone does not ask it.
 * Returns 0; 1 when the daemon receives messages in an unknown way; -1. */
int jail_large_messages_guard(const struct link_map *program, const struct link_map *library,
			      bool (*refused)(const unsigned char *text, size_t size), struct jail_error *err);

/* What the guard has a daemon call in place of accept4(2), close(2), read(2) and recv(2), for who gets between in another way. */
int jail_large_messages_accept4(int listener, struct sockaddr *address, socklen_t *size, int flags);
int jail_large_messages_close(int fd);
ssize_t jail_large_messages_read(int fd, void *buffer, size_t size);
ssize_t jail_large_messages_recv(int fd, void *buffer, size_t size, int flags);

/* Whether it is a connection of a client's that was accepted by the above, and not closed. */
bool jail_large_messages_is_watched(int fd);

#endif
