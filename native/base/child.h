/* SPDX-License-Identifier: Apache-2.0 */
/* A child process that shares the caller's memory, for work that a thread of a daemon cannot do, such as entering
 * another mount namespace. */
#ifndef JAIL_CHILD_H
#define JAIL_CHILD_H

#include <sys/types.h>

#include "error.h"

/* Runs `work(argument)` in such a process and waits for its end, for 2 s at most: one that enters a PID namespace can be
 * stopped or ended there by those who are in it. `flags` are those of clone(2) besides CLONE_VM. Returns 0, or -1 when it
 * could not be started or did not come to its end; err->number is EAGAIN then. */
int jail_child_run(int (*work)(void *argument), void *argument, int flags, struct jail_error *err);

/* Starts a process that runs `work(argument)` in the memory of the caller, which waits until the process
 * executes a program or ends, as posix_spawn(3) does it: the address space is not copied, and no signal
 * handler runs in the wrong process. `flags` are those of clone(2) besides CLONE_VM and CLONE_VFORK, with
 * the signal that reports its end. The caller reaps it. Returns its number, or -1. */
pid_t jail_child_start(int (*work)(void *argument), void *argument, int flags, struct jail_error *err);

#endif
