/* SPDX-License-Identifier: Apache-2.0 */
/* Finds users and groups in the jail's passwd(5) and group(5), read as text. getpwnam(3) is not used: it would load
 * the NSS modules that the jail's nsswitch.conf names, and users can write the jail. */
#ifndef JAIL_ACCOUNTS_H
#define JAIL_ACCOUNTS_H

#include <stddef.h>
#include <sys/types.h>

#include "error.h"

#define JAIL_MAX_GROUPS 1024

struct jail_account {
	char name[256], home[1024], shell[1024];
	uid_t uid;
	gid_t gid;
	gid_t groups[JAIL_MAX_GROUPS]; /* primary group first, no duplicates */
	size_t n_groups;
};

/* Looks `user` up (a name, or a number for a uid) in etc/passwd and etc/group of the tree at descriptor
 * `root`. -1: no such user, an unreadable or malformed entry. */
int jail_account_find(int root, const char *user, struct jail_account *account, struct jail_error *err);

/* The same for the texts of the two files; NUL-terminated and modified. Entry of the unit test. */
int jail_account_parse(char *passwd, char *group, const char *user, struct jail_account *account,
		       struct jail_error *err);

/* Becomes the account for good: groups, gid, uid; verifies that there is no way back. Returns 0 or -1. */
int jail_account_become(const struct jail_account *account, struct jail_error *err);

#endif
