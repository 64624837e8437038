/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's arguments that say which jobs get the jail: jail-partitions=, jail-users=, jail-groups=,
 * jail-by-request=.
 *
 * Without any of them all jobs get it. With some, those jobs do that one of them names; the others run as if the
 * plugin were not there. docs/packages.md says who could leave the jail that way.
 */
#ifndef JAIL_SELECTION_H
#define JAIL_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "native/base/error.h"

#define JAIL_MAX_RANGES 8

struct jail_id_range {
	unsigned low, high;
};

struct jail_id_list {
	struct jail_id_range ranges[JAIL_MAX_RANGES];
	size_t n;
};

struct jail_selection {
	const char *partitions; /* names with commas; NULL: none */
	struct jail_id_list users, groups;
	bool by_request;
};

/* Reads "LOW-HIGH,ID,..." of `key`= into `list`. Returns 0 or -1. */
int jail_ids_parse(struct jail_id_list *list, const char *key, const char *value, struct jail_error *err);

bool jail_ids_have(const struct jail_id_list *list, unsigned id);

/* Reads an argument that is one of the four. 1: it is none of them; 0; or -1: its value is wrong. The value is used in place. */
int jail_selection_parse(struct jail_selection *selection, const char *argument, struct jail_error *err);

/* Whether the jail is for some jobs only. */
bool jail_selection_is_given(const struct jail_selection *selection);

/* Whether the user is named, by uid or by a group: one of `groups` (as slurmctld sends them), or one that this machine's accounts
 * give him. `sg` lets him leave his primary group out of the first, and so a user whom this machine does not know is taken for
 * a member. */
bool jail_selection_names_user(const struct jail_selection *selection, uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups);

/* Whether one of `partitions`, names with commas, is named. */
bool jail_selection_names_partition(const struct jail_selection *selection, const char *partitions);

#endif
