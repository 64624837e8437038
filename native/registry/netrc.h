/* SPDX-License-Identifier: Apache-2.0 */
/* Lines "machine HOST login USER password PASS", as in .netrc. */
#ifndef REGISTRY_NETRC_H
#define REGISTRY_NETRC_H

#include "native/base/text.h"

struct netrc_entry {
	char *login, *password; /* password NULL: the line names none. The caller frees both */
	int line;
};

/* The first entry of `text` for `host`, and for `user` unless that is NULL or "". Words stand apart by blanks or line
 * ends, in double quotes they may hold blanks; a password that begins with "$(" ends with its ")". "#" begins a comment
 * where a word could begin; an entry `default` fits any host. Returns 1, 0: none; -1: a word is where none belongs. */
int netrc_find(struct netrc_entry *entry, const char *text, const char *host, const char *user, struct jail_error *err);
void netrc_entry_free(struct netrc_entry *entry);

#endif
