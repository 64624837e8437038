/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the plugin's arguments that say which jobs get the jail, and tells whether a user, group or partition is
 * among them. slurm/step_selection.c decides with it for a step. arguments.c, slurm/step_selection.c and pam_jail.c
 * call it. */
#define _GNU_SOURCE
#include "selection.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/argument.h"

/* More than NGROUPS_MAX there cannot be. */
#define MAX_GROUPS 65536

/* One number of a list; -1 where there is none. */
static long long read_id(const char **rest)
{
	char *end;

	errno = 0;
	unsigned long id = strtoul(*rest, &end, 10);
	if (**rest < '0' || **rest > '9' || errno || id >= (uid_t)-1)
		return -1;
	*rest = end;
	return (long long)id;
}

int jail_ids_parse(struct jail_id_list *list, const char *key, const char *value, struct jail_error *err)
{
	list->n = 0;
	for (const char *rest = value;; rest++) {
		long long low = read_id(&rest);
		long long high = low >= 0 && *rest == '-' ? (rest++, read_id(&rest)) : low;
		if (low < 0 || high < low || (*rest && *rest != ','))
			return jail_fail(err, NULL, 0, "%s= takes numbers and ranges with commas between them, as in 1000-1999,3000, "
					 "not \"%s\"", key, value);
		if (list->n == JAIL_MAX_RANGES)
			return jail_fail(err, NULL, 0, "%s= lists more than %d ranges", key, JAIL_MAX_RANGES);
		list->ranges[list->n++] = (struct jail_id_range){ (unsigned)low, (unsigned)high };
		if (!*rest)
			return 0;
	}
}

bool jail_ids_have(const struct jail_id_list *list, unsigned id)
{
	for (size_t i = 0; i < list->n; i++)
		if (id >= list->ranges[i].low && id <= list->ranges[i].high)
			return true;
	return false;
}

static int set_partitions(struct jail_selection *selection, const char *value, struct jail_error *err)
{
	size_t length = strlen(value);

	if (!length || value[0] == ',' || value[length - 1] == ',' || strstr(value, ",,"))
		return jail_fail(err, NULL, 0, "jail-partitions= takes names of partitions with commas between them, not \"%s\"", value);
	selection->partitions = value;
	return 0;
}

static int set_by_request(struct jail_selection *selection, const char *value, struct jail_error *err)
{
	selection->by_request = !strcmp(value, "yes");
	if (selection->by_request || !strcmp(value, "no"))
		return 0;
	return jail_fail(err, NULL, 0, "jail-by-request= takes yes or no, not \"%s\"", value);
}

int jail_selection_parse(struct jail_selection *selection, const char *argument, struct jail_error *err)
{
	const char *value;

	if ((value = jail_value_of(argument, "jail-partitions")))
		return set_partitions(selection, value, err);
	if ((value = jail_value_of(argument, "jail-users")))
		return jail_ids_parse(&selection->users, "jail-users", value, err);
	if ((value = jail_value_of(argument, "jail-groups")))
		return jail_ids_parse(&selection->groups, "jail-groups", value, err);
	if ((value = jail_value_of(argument, "jail-by-request")))
		return set_by_request(selection, value, err);
	return 1;
}

bool jail_selection_is_given(const struct jail_selection *selection)
{
	return selection->partitions || selection->users.n || selection->groups.n || selection->by_request;
}

static bool have_any(const struct jail_id_list *list, const gid_t *groups, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (jail_ids_have(list, groups[i]))
			return true;
	return false;
}

/* Of this machine's accounts. */
static bool is_member_here(const struct jail_id_list *list, uid_t uid)
{
	int n = 64;
	const struct passwd *user = getpwuid(uid);
	gid_t *groups = malloc((size_t)n * sizeof(*groups));
	bool found = true;

	while (user && groups && getgrouplist(user->pw_name, user->pw_gid, groups, &n) < 0 && n <= MAX_GROUPS) {
		gid_t *more = realloc(groups, (size_t)n * sizeof(*groups));
		if (!more)
			break;
		groups = more;
	}
	if (user && groups && n <= MAX_GROUPS)
		found = have_any(list, groups, (size_t)n);
	free(groups);
	return found;
}

bool jail_selection_names_user(const struct jail_selection *selection, uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups)
{
	if (jail_ids_have(&selection->users, uid))
		return true;
	if (!selection->groups.n)
		return false;
	return jail_ids_have(&selection->groups, gid) || have_any(&selection->groups, groups, n_groups) ||
	       is_member_here(&selection->groups, uid);
}

bool jail_selection_names_partition(const struct jail_selection *selection, const char *partitions)
{
	for (const char *name = partitions; selection->partitions && *name; name += strspn(name, ",")) {
		size_t length = strcspn(name, ",");
		for (const char *known = selection->partitions; *known; known += strspn(known, ",")) {
			size_t known_length = strcspn(known, ",");
			if (length == known_length && !strncmp(name, known, length))
				return true;
			known += known_length;
		}
		name += length;
	}
	return false;
}
