/* SPDX-License-Identifier: Apache-2.0 */
/* A terminal (pty) in the jail for jail-enter's command.
 *
 * The caller's own terminal is not handed in: root in the jail could read what is typed there. So the command gets
 * one of the jail's, and a process outside copies between the two.
 */
#ifndef JAIL_TERMINAL_H
#define JAIL_TERMINAL_H

#include <sys/types.h>

#include "native/base/error.h"

/* Forks where one of the standard streams is a terminal. Returns in the child, with a socket for jail_terminal_open; else
 * -1, and the caller has no controlling terminal any more. The parent does not return: it relays, and ends with the child's status.
 * -2: failed. */
int jail_terminal_fork(struct jail_error *err);

/* In the child, in the jail: makes a terminal there the controlling one, and puts it in place of those among the
 * standard streams that are terminals. Returns 0 or -1. */
int jail_terminal_open(int socket, struct jail_error *err);

/* Gives it to the user who is to use it. Returns 0 or -1. */
int jail_terminal_give(uid_t uid, struct jail_error *err);

#endif
