/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the jail's passwd, group and shadow on a node, in a directory that the
 * NSS module libnss-extrausers reads. */
#ifndef ACCOUNT_COPY_H
#define ACCOUNT_COPY_H

#include <stdbool.h>
#include <sys/stat.h>

#include "account_records.h"

struct accounts_request {
	const char *jail;   /* the tree whose etc has the accounts; or NULL, and `etc` is that directory itself */
	const char *etc;
	const char *target; /* writable by root alone */
	const char *own;    /* the node's /etc */
	long shadow_gid;    /* the group that may read the copy of shadow; -1: none */
};

/* The files as they can be seen without opening them: what tells one state of them from another. */
struct accounts_state {
	struct statx files[ACCOUNTS_N_FILES]; /* of mode 0: not there */
};

/* Looks at the files. Asks the server of a network volume, not this node's cache. */
void accounts_look(const struct accounts_request *request, struct accounts_state *state);

/* Tells at once what this node changes in the jail's /etc; what others change on a network volume, never. */
struct accounts_watch {
	int fd; /* of inotify_init1(2) */
	int id; /* of the directory that is watched; -1: none */
};

/* Watches the /etc that is there now. Without it, changes are found by looking. */
void accounts_watch(const struct accounts_request *request, struct accounts_watch *watch);

/* Whether nothing was replaced, written or removed between the two. */
bool accounts_unchanged(const struct accounts_state *a, const struct accounts_state *b);

/* Reads the files and writes the copies: all of them, or none when one cannot be read. Returns 0 or -1. */
int accounts_copy(const struct accounts_request *request, struct accounts_refused refused[ACCOUNTS_N_FILES],
		  struct jail_error *err);

/* The gid of the node's own group `shadow`, or -1. */
long accounts_shadow_gid(const char *own);

#endif
