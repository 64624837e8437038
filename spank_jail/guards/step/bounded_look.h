/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at a process in /proc from a child that is killed after a second, because the process may
 * keep its readers waiting. */
#ifndef JAIL_BOUNDED_LOOK_H
#define JAIL_BOUNDED_LOOK_H

#include <stdbool.h>

/* Answers within a second what `look` finds, in a process of its own that is ended then: 1, 0, or -1 when it has no answer.
 * `look` allocates no memory: other threads may hold the locks of that. */
int bounded_look(bool (*look)(const void *argument), const void *argument);

/* Whether the descriptor `name` of a process, of whose /proc/PID/fd `files` is one, is a /dev/fuse. Asks no file system. */
bool bounded_look_is_fuse(int files, const char *name);

/* Calls `each` with the names in a directory until that returns true. Returns that, and false at the end. Allocates nothing. */
bool bounded_look_list(int directory, bool (*each)(int directory, const char *name, const void *argument), const void *argument);

#endif
