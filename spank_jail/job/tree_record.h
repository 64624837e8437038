/* SPDX-License-Identifier: Apache-2.0 */
/* The record of what a job's tree was mounted from: a later step compares it, and uses the tree again if nothing
 * changed.
 *
 * It is a file beside the tree with the identity of the plan, of the jail's root and of every path of the node that
 * was mounted, and the options that count. Checking it costs one statx(2) per path, a tenth of mounting again.
 */
#ifndef JAIL_TREE_RECORD_H
#define JAIL_TREE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "native/base/error.h"

struct jail_record {
	char *data;
	size_t size, capacity;
	int mounts; /* of the tasks' namespace; one that lost some is of no use */
};

/* Starts a record with the plan and the jail's root, both open: which files, with which owner and mode.
 * Returns 0 or -1. */
int jail_record_begin(struct jail_record *record, int plan, int root, struct jail_error *err);

/* Adds any text that makes a difference. Together with the above it is what a step knows before it reads
 * the plan. Returns 0 or -1. */
int jail_record_add_text(struct jail_record *record, const char *text, struct jail_error *err);

/* Adds a path of the node: as it is now, or that it is missing. `content`: what is in it counts, too, not only
 * which file or directory it is. Returns 0 or -1. */
int jail_record_add(struct jail_record *record, const char *path, bool content, struct jail_error *err);

/* Adds a value that a later step wants to know; it makes no difference. Returns 0 or -1. */
int jail_record_add_value(struct jail_record *record, const char *value, struct jail_error *err);

/* The next value after `after`, or the first when that is NULL; NULL when there is no more. */
const char *jail_record_value(const struct jail_record *record, const char *after);

/* Stores the record as the file `name` in `directory`, in one piece or not at all. Returns 0 or -1. */
int jail_record_store(const struct jail_record *record, int directory, const char *name, struct jail_error *err);

/* Whether the file `name` in `directory` begins as `record`, which was begun, does, and all its paths are
 * as they were. Then `record` becomes what was stored. */
bool jail_record_holds(struct jail_record *record, int directory, const char *name);

void jail_record_free(struct jail_record *record);

#endif
