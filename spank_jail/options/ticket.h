/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets for --no-jail: they prove that a job was submitted from outside the jail, by the user as whom it runs.
 *
 * A ticket is a symbolic link with an unguessable name in DIRECTORY/UID, on a volume that all nodes share and no jail
 * shows: only somebody outside can make one, and its owner says who. A file would not do: Slurm writes users' files
 * outside (sbcast). The job carries the name, the first use on a node claims it, and it serves nobody else
 * (docs/decisions/jail-options.md).
 */
#ifndef JAIL_TICKET_H
#define JAIL_TICKET_H

#include <sys/types.h>

#include "native/base/error.h"

/* 128 bits in hexadecimal, and a zero. */
#define JAIL_TICKET_SIZE 33
/* A job may wait so long for its start, and be requeued until then. */
#define JAIL_TICKET_SECONDS (30 * 24 * 3600)

/* Makes a ticket of the calling process's user, and removes his expired ones. Returns 0 or -1. */
int jail_ticket_make(const char *directory, char name[JAIL_TICKET_SIZE], struct jail_error *err);

/* Takes a ticket away again, if it is there. */
void jail_ticket_drop(const char *directory, const char *name);

/* On a node: whether `name` is a ticket of `uid` that nobody but `claimant` ("JOB.STEP") has used. Returns 0 or -1. */
int jail_ticket_claim(const char *directory, uid_t uid, const char *name, const char *claimant,
		      struct jail_error *err);

#endif
