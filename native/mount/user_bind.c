/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a bind mount that a user asks for, and opens its source with that user's rights. native/jail and
 * spank_jail/options call it. */
#define _GNU_SOURCE
#include "user_bind.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/trust.h"

/* For mounts by the Filesystem Hierarchy Standard: whatever a user covers there, no program trusts it. */
static const char *const places[] = { "/mnt", "/media", "/srv", NULL };

int jail_path_within(const char *path, const char *top)
{
	size_t length = strlen(top);

	while (length && top[length - 1] == '/')
		length--;
	return !strncmp(path, top, length) && (path[length] == '/' || path[length] == '\0');
}

int jail_path_plain(const char *path)
{
	if (path[0] != '/' || !path[1])
		return 0;
	for (const char *part = path; *part; part += strcspn(part, "/")) {
		part++;
		size_t length = strcspn(part, "/");
		if (!length || !strncmp(part, ".", length) || (length == 2 && !strncmp(part, "..", 2)))
			return 0;
	}
	return 1;
}

/* Opens the allowed directory. Those above it must be root's; it itself may be anybody's, as /scratch is. */
static int open_allowed(const char *path, struct jail_error *err)
{
	char parent[PATH_MAX], copy[PATH_MAX];

	snprintf(parent, sizeof(parent), "%s", path);
	snprintf(copy, sizeof(copy), "%s", path);
	scoped_fd above = jail_open_trusted(dirname(parent), 1, "directory above bind-allow=", err);
	if (above < 0)
		return -1;
	int fd = openat(above, basename(copy), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return jail_fail(err, "openat", errno, errno == ELOOP || errno == ENOTDIR
				 ? "bind-allow=%s is a symlink or a file; name the real directory in plugstack.conf"
				 : "bind-allow=%s is not on this node", path);
	return fd;
}

static int look_up(int allowed, const char *path, const char *source, struct jail_error *err)
{
	int fd = sys_openat2(allowed, path, O_PATH, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);

	if (fd >= 0)
		return fd;
	int number = errno;
	return jail_fail(err, "openat2", number,
			 number == ENOENT ? "the source \"%s\" is missing on this node"
			 : number == EACCES ? "you may not reach the source \"%s\" on this node"
			 : number == EXDEV ? "the source \"%s\" leads out of what bind-allow= allows, by a symlink"
			 : "cannot open the source \"%s\" on this node", source);
}

/* With the user's rights, which for other users than root also takes CAP_DAC_* away meanwhile. */
static int look_up_as(const struct jail_user *user, int allowed, const char *path, const char *source,
		      struct jail_error *err)
{
	int n = getgroups(0, NULL);
	scoped_free gid_t *own = malloc(((size_t)(n > 0 ? n : 0) + 1) * sizeof(gid_t));

	if (n < 0 || !own || getgroups(n, own) != n)
		return jail_fail(err, "getgroups", errno, "cannot tell the groups of this process");
	if (sys_thread_setgroups(user->n_groups, user->groups))
		return jail_fail(err, "setgroups", errno, "cannot look up the source \"%s\" as its user", source);
	gid_t gid = sys_thread_setfsgid(user->gid);
	uid_t uid = sys_thread_setfsuid(user->uid);
	scoped_fd fd = look_up(allowed, path, source, err);
	sys_thread_setfsuid(uid);
	sys_thread_setfsgid(gid);
	if (sys_thread_setgroups((size_t)n, own))
		return jail_fail(err, "setgroups", errno, "cannot get back root's groups");
	return jail_keep(&fd);
}

int jail_user_bind_source(const struct jail_entry *entry, struct jail_error *err)
{
	const char *rest = entry->source + strlen(entry->beneath);
	scoped_fd allowed = open_allowed(entry->beneath, err);

	if (allowed < 0)
		return -1;
	rest += strspn(rest, "/");
	scoped_fd source = look_up_as(entry->user, allowed, *rest ? rest : ".", entry->source, err);
	if (source < 0)
		return -1;
	scoped_fd mount = sys_open_tree(source, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH);
	if (mount < 0)
		return jail_fail(err, "open_tree", errno, "cannot take the source \"%s\"", entry->source);
	if (sys_mount_setattr(mount, "", AT_EMPTY_PATH | AT_RECURSIVE, entry->attributes, 0))
		return jail_fail(err, "mount_setattr", errno, "cannot set the options on \"%s\"", entry->source);
	return jail_keep(&mount);
}

static int in_a_place(const char *path)
{
	for (const char *const *place = places; *place; place++)
		if (jail_path_within(path, *place))
			return 1;
	return 0;
}

int jail_user_bind_target(int root, const struct jail_entry *entry, struct jail_error *err)
{
	uid_t uid = entry->user->uid;
	struct stat st;
	scoped_fd fd = sys_openat2(root, entry->target, O_PATH | O_NOFOLLOW,
				   RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);

	if (fd < 0) {
		int number = errno;
		return jail_fail(err, "openat2", number, "%s",
				 number == ENOENT ? "the target does not exist in the jail; make it there first"
				 : number == ELOOP ? "the target goes through a symlink; write the real path"
				 : "cannot open the target in the jail");
	}
	if (fstat(fd, &st))
		return jail_fail(err, "fstat", errno, "cannot look at the target in the jail");
	if (S_ISLNK(st.st_mode))
		return jail_fail(err, NULL, 0, "the target is a symlink; write the real path");
	if (uid && st.st_uid != uid && !in_a_place(entry->target))
		return jail_fail(err, NULL, 0, "the target belongs to uid %u; bind onto a directory of your own, or one "
				 "below /mnt, /media or /srv", (unsigned)st.st_uid);
	return jail_keep(&fd);
}
