/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the names that a list of nodes stands for, and refuses lists that are too long in slurmctld, slurmd and
 * slurmstepd. forwarding.c, job_submit_jail.c, launches.c and mpi_peers.c call it.
 *
 * slurmctld expands a list that a user sends (sbatch --exclude, srun --nodelist), looks each name up and logs each
 * unknown one, with its locks held. "a[0-65535]b[0-65535]" takes it hours; three brackets fill its memory.
 */
#define _GNU_SOURCE
#include "node_names.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "imported_functions.h"

/* What ends a name; so Slurm has it. */
#define SEPARATORS "\t, \n"
/* Numbers in brackets: Slurm's own limits for a range are 2^16 to 2^18. */
#define MOST_DIGITS 9
/* Names that a list may have beyond one for each node: the same one twice, or of nodes that are gone. They take some ms. */
#define BEYOND 1024
/* While slurmctld has read no nodes: the most that it can have. */
#define MOST_NODES 65536
/* In the log, and in no configuration. */
#define NO_NODE "too-many-nodes-named"

/* slurmctld's, or the library's that it comes from. NULL: unknown. */
static const int *node_count;
static void *(*own_list)(const char *), *(*own_set)(const char *);
/* Before 23.02 without the last argument, which is not looked at then. */
static int (*own_bitmap)(char *, bool, void **, void **);
static int (*own_intersects)(void *, const char *);
static void *(*own_any_list)(const char *, int);

static bool read_number(const char **text, unsigned long *number)
{
	size_t digits = strspn(*text, "0123456789");

	if (!digits || digits > MOST_DIGITS)
		return false;
	*number = strtoul(*text, NULL, 10);
	*text += digits;
	return true;
}

/* "1-3,7]": how many; behind the bracket. 0: it is none. */
static unsigned long count_in_brackets(const char **text, unsigned most)
{
	unsigned long all = 0, first, last;

	do {
		if (!read_number(text, &first))
			return 0;
		last = first;
		if (**text == '-' && (++*text, !read_number(text, &last)))
			return 0;
		if (last < first)
			return 0;
		all += last - first + 1;
	} while (all <= most && *(*text)++ == ',');
	return all > most || (*text)[-1] == ']' ? all : 0;
}

unsigned jail_node_names_count(const char *names, unsigned most)
{
	unsigned long all = 0, one = 1;

	for (; *names; names++) {
		if (strchr(SEPARATORS, *names)) {
			all += one;
			one = 1;
		} else if (*names == '[') {
			names++;
			one *= count_in_brackets(&names, most);
			if (!one)
				return most + 1;
			names--;
		}
		if (all + one > most)
			return most + 1;
	}
	return (unsigned)(all + one);
}

static bool are_too_many(const char *names)
{
	int nodes = node_count ? *node_count : 0;
	unsigned most = (unsigned)(nodes > 0 ? nodes : MOST_NODES) + BEYOND;

	return names && jail_node_names_count(names, most) > most;
}

/* In place of Slurm's functions. */
static void *make_list(const char *names)
{
	return own_list(are_too_many(names) ? NO_NODE : names);
}

static void *make_set(const char *names)
{
	return own_set(are_too_many(names) ? NO_NODE : names);
}

static int make_bitmap(char *names, bool test_alias, void **bitmap, void **invalid)
{
	static char none[] = NO_NODE;

	return own_bitmap(are_too_many(names) ? none : names, test_alias, bitmap, invalid);
}

static int intersects(void *set, const char *names)
{
	return own_intersects(set, are_too_many(names) ? NO_NODE : names);
}

int jail_node_names_guard(const struct link_map *program, struct jail_error *err)
{
	const struct {
		const char *name;
		void *function, *own;
		bool needed;
	} functions[] = {
		{ "hostlist_create", (void *)make_list, &own_list, true },
		{ "hostset_create", (void *)make_set, &own_set, true },
		{ "node_name2bitmap", (void *)make_bitmap, &own_bitmap, true },
		{ "hostset_intersects", (void *)intersects, &own_intersects, false },
	};

	node_count = dlsym(RTLD_DEFAULT, "node_record_count");
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		int missing = jail_imports_wrap(program, functions[i].name, functions[i].function, functions[i].own, err);
		if (missing < 0 || (missing && functions[i].needed))
			return missing;
	}
	return 0;
}

/* In place of hostlist_create_dims, by which the library makes all lists. */
static void *make_any_list(const char *names, int dimensions)
{
	bool many = names && jail_node_names_count(names, MOST_NODES) > MOST_NODES;

	return own_any_list(many ? NO_NODE : names, dimensions);
}

int jail_node_names_guard_library(struct jail_error *err)
{
	const struct link_map *library = jail_imports_library("libslurm");

	return library ? jail_imports_wrap(library, "hostlist_create_dims", (void *)make_any_list, &own_any_list, err) : 1;
}
