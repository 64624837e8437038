/* SPDX-License-Identifier: Apache-2.0 */
/* Parses lines in the form of fstab(5), with enroot's extensions: the options x-create, x-move and x-detach, fields
 * that may be missing, and mounts before or after the hooks. */
#ifndef ENROOT_FSTAB_H
#define ENROOT_FSTAB_H

#include <stdint.h>

#include "native/settings/expand.h"

enum fstab_action { FSTAB_MOUNT, FSTAB_BIND, FSTAB_REMOUNT, FSTAB_MOVE, FSTAB_DETACH };
enum fstab_create { FSTAB_CREATE_NONE, FSTAB_CREATE_DIR, FSTAB_CREATE_FILE, FSTAB_CREATE_AUTO };

#define FSTAB_MAX_DATA 16

struct fstab_entry {
	char *source, *target, *type;
	enum fstab_action action;
	bool recursive; /* of a bind */
	enum fstab_create create;
	bool nofail, silent;
	uint64_t set, clear; /* MOUNT_ATTR_* */
	uint64_t propagation; /* MS_PRIVATE and its kind, or 0 */
	bool propagation_recursive;
	const char *data[FSTAB_MAX_DATA]; /* "key=value" or "key", for the file system */
	size_t n_data;
	int pass;
	char *storage;
};

/* Reads one line. Returns 1 with an entry, which the caller frees, 0 for a line without one (empty, a comment), or
 * -1. */
int fstab_parse(const char *line, const struct expand_request *variables, struct fstab_entry *entry,
		struct jail_error *err);
void fstab_entry_free(struct fstab_entry *entry);

/* A path as a field of such a line, with blanks and the like escaped; the caller frees it. */
char *fstab_field(const char *path);

/* Whether `target` stays within the root: "/a/../.." does not. */
bool fstab_target_is_inside(const char *target);

#endif
