/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the lines of the jail's passwd(5), group(5) and shadow(5), and writes valid ones anew for the node.
 *
 * People who are root in the jail wrote them, so nothing is copied unchecked. `accounts_check` has the rules,
 * docs/decisions/jail-accounts.md the reasons. There are no system calls here, so that the unit test and the fuzz
 * target can call it.
 */
#ifndef ACCOUNT_RECORDS_H
#define ACCOUNT_RECORDS_H

#include <stddef.h>

#include "native/base/error.h"

/* Bytes of a line of passwd and shadow. */
#define ACCOUNTS_LINE_MAX 4096U
/* Bytes of a line of group: one that has all users of a large site. */
#define ACCOUNTS_GROUP_LINE_MAX (1024U * 1024U)
/* Bytes of a whole file: some 200,000 users. */
#define ACCOUNTS_FILE_MAX (16UL * 1024 * 1024)

enum accounts_file { ACCOUNTS_PASSWD, ACCOUNTS_GROUP, ACCOUNTS_SHADOW, ACCOUNTS_N_FILES };

/* Bytes that are no string: `size` of them, and one more that is a NUL. */
struct accounts_text {
	char *bytes;
	size_t size;
};

/* Lines that should have been accounts and were left out: how many, and the first one. */
struct accounts_refused {
	size_t n;
	size_t line;        /* of the first, counted from 1 */
	const char *reason; /* of the first, a constant */
};

/* The name of a file: "passwd", "group", "shadow". */
const char *accounts_file_name(enum accounts_file which);

/* Writes the accounts of `jail` that count on a node into `copy`, whose texts the caller frees, in any case.
 *
 * `own` holds passwd and group of the node. Left out without a word is what each system has: lines with ids of the system,
 * comments, empty lines, and lines that equal one of `own` in name and id. Left out and told of in `refused`: lines that are
 * no records, names and ids of `own`, repeated names and ids, users whose primary group is the system's.
 *
 * A written user has an `x` for a password and no comment (GECOS); a written group has ordinary members only; a written
 * shadow line has `*` or, for an account that is locked, `!` for the hash, and the ageing fields.
 *
 * The texts of `jail` and `own` are modified. Time is n log n of their size. Returns 0, or -1 when there is no memory, or
 * a text is not whole: empty, or its last line does not end. */
int accounts_check(struct accounts_text jail[ACCOUNTS_N_FILES], struct accounts_text own[2],
		   struct accounts_text copy[ACCOUNTS_N_FILES], struct accounts_refused refused[ACCOUNTS_N_FILES],
		   struct jail_error *err);

/* The gid of group `name` in the text of a group file, which is modified; -1: there is none. */
long accounts_gid_of(struct accounts_text *group, const char *name);

#endif
