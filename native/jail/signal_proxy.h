/* SPDX-License-Identifier: Apache-2.0 */
/* A process that stands in for its child: it passes signals on to the child, and ends with its status. */
#ifndef JAIL_SIGNAL_PROXY_H
#define JAIL_SIGNAL_PROXY_H

#include "native/base/error.h"

/* Forks, into the PID namespace that the calling thread's children are for, and returns 0 in the child, or -1
 * with no child. The parent does not return: it passes on what signals it is sent, stops when the child
 * stops, and ends as the child ends, with its status or by the same signal. Both stay in one process group,
 * which the terminal's signals reach as a whole; they are not passed on. */
int jail_signal_proxy_fork(struct jail_error *err);

#endif
