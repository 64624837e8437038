/* SPDX-License-Identifier: Apache-2.0 */
/* Marks jobs that run outside the jail, where it is for some jobs only. The PAM module asks whether a user's login
 * session is to be outside, too.
 *
 * A mark is a file of the job in a directory of root's, on which each slurmstepd of the job holds a lock. It counts
 * while one of them lives.
 */
#ifndef JAIL_OUTSIDE_MARKS_H
#define JAIL_OUTSIDE_MARKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "native/base/error.h"

/* Marks the job, until the descriptor is closed. Returns it, or -1. */
int jail_outside_note(uint32_t job, uid_t user, struct jail_error *err);

/* Removes the mark of a job that is over. */
void jail_outside_forget(uint32_t job, uid_t user);

/* Whether all jobs that `user` has on this node are outside, and there is one. In doubt: no. */
bool jail_outside_is_all(uid_t user);

#endif
