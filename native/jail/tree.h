/* The plan becomes mounts on a tree. */
#ifndef JAIL_TREE_H
#define JAIL_TREE_H

#include <stdbool.h>

#include "native/base/error.h"
#include "native/mount/level.h"
#include "native/mount/plan.h"

/* At level pid the lines of a plan are applied in two places: what shows processes, by one of them. */
enum jail_part { JAIL_PART_ALL, JAIL_PART_PROC, JAIL_PART_OTHERS };

/* What a caller adds to applying a plan. All pointers but `plan` may be NULL. */
struct jail_setup {
	const struct jail_plan *plan;
	enum jail_level level;
	/* One for each entry: a complete mount, attached nowhere, that is used instead of a new one, or -1. What
	 * is used is the tree's from then on, and -1 afterwards. */
	int *mounts;
	/* Hears of each entry that is left out because of nofail or x-jail.if; one line, no newline. */
	void (*notice)(void *context, const char *text);
	void *context;
	enum jail_part part;
};

/* Clones the directory `path` with what is mounted below it and attaches the clone over it, in the
 * caller's mount namespace (which must be its own: jail_namespace_private). Device nodes of the volume
 * are dead in it (nodev). Returns a descriptor of the attached tree's root, or -1. */
int jail_tree_attach(const char *path, struct jail_error *err);

/* Lets set-user-ID programs and file capabilities of the volume count in the namespace of the attached tree `root`,
 * also where the node mounts the volume nosuid: in there they give rights in the jail alone. Returns 0 or -1. */
int jail_tree_allow_suid(int root, struct jail_error *err);

/* Makes the volume read-only in the namespace of the attached tree `root`; what the plan mounted on it stays
 * as it is. After jail_tree_apply, which may have to create targets. Returns 0 or -1. */
int jail_tree_readonly(int root, struct jail_error *err);

/* What remains to be done once the new mount of `entry` is attached somewhere: a private /dev is filled.
 * Whoever gives a mount in `mounts` has done so. Returns 0 or -1. */
int jail_tree_complete(int mount, const struct jail_entry *entry, struct jail_error *err);

/* Mounts every entry of the plan, in its order, onto the attached tree `root`; from level capabilities up
 * proc and sysfs are masked (mask.h). On -1 what was mounted so far stays: the caller drops the namespace,
 * which is the only way to take all of it away. */
int jail_tree_apply(int root, const struct jail_setup *setup, struct jail_error *err);

/* Internal to the core: tells setup->notice that `entry`, or a part of it, is left out. */
void jail_tree_notice(const struct jail_setup *setup, const struct jail_entry *entry, const char *why);

/* What nofail forgives: something is not there. Anything else (no permission, a full volume, a stale
 * handle) would be hidden trouble. */
bool jail_tree_forgives(const struct jail_entry *entry, const struct jail_error *err);

#endif
