/* What a job's tree was made of, so that a later step can tell whether it would make the same.
 *
 * A record is a file beside the tree: the identity of the plan, of the jail's root and of every path of the
 * node that was mounted from, and the options that count. Checking it costs a statx(2) a path, a tenth of
 * parsing the plan and mounting again.
 */
#ifndef JAIL_RECORD_H
#define JAIL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../core/error.h"

struct jail_record {
	char *data;
	size_t size, room;
	int mounts; /* of the tasks' namespace; one that lost some is of no use */
};

/* Starts a record with what a step knows before it reads the plan: the open plan and jail root, with owner
 * and mode, and `options`, any text that makes a difference. Returns 0 or -1. */
int jail_record_begin(struct jail_record *record, int plan, int root, const char *options, struct jail_error *err);

/* Adds a path of the node: as it is now, or that it is missing. Returns 0 or -1. */
int jail_record_add(struct jail_record *record, const char *path, struct jail_error *err);

/* Stores the record as the file `name` in `directory`, in one piece or not at all. Returns 0 or -1. */
int jail_record_store(const struct jail_record *record, int directory, const char *name, struct jail_error *err);

/* Whether the file `name` in `directory` begins as `record`, which was begun, does, and all its paths are
 * as they were. Then record->mounts is what was stored. */
bool jail_record_holds(struct jail_record *record, int directory, const char *name);

void jail_record_free(struct jail_record *record);

#endif
