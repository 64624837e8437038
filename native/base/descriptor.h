/* SPDX-License-Identifier: Apache-2.0 */
/* Sends a file descriptor to another process over a Unix socket, with a few bytes beside it (unix(7), SCM_RIGHTS). */
#ifndef JAIL_DESCRIPTOR_H
#define JAIL_DESCRIPTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Behind the path of an image in the cache, and a zero, that enroot's import hands over: nothing had to be fetched. */
#define ENROOT_IMAGE_FOUND "found"

/* Sends `fd` with the `length` bytes at `bytes`, at least one. Returns whether all of them went; there is no signal when
 * nobody reads. */
bool jail_descriptor_send(int socket, int fd, const void *bytes, size_t length);

/* Reads at most `size` bytes, without waiting. Returns as recvmsg(2) does: how many, 0 at the end, or -1 and errno. `*fd` is
 * the descriptor that came with them, closed on execution, or -1; of several the first. */
ssize_t jail_descriptor_receive(int socket, int *fd, void *bytes, size_t size);

#endif
