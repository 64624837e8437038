/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets for --no-jail: the proof that a job was submitted from outside the jail, by the user it runs as.
 *
 * A ticket is a symbolic link with an unguessable name in DIRECTORY/UID, where DIRECTORY is on a volume that
 * all nodes share and no jail shows. Who can make one there is outside, and its owner says who. A link and not a
 * file: files a user can have Slurm write outside (sbcast), links not. The job carries the name; the first use on a node claims it (a symlink, made atomically), and it serves nobody else.
 * docs/decisions/jail-options.md says why this and no signature.
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
