/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts what lines of enroot's fstab say into the container's root. mounts.c calls it, and hooks.c
 * for what hooks add. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/report.h"
#include "fstab_apply.h"

/* A link to nothing, as /var/lock on a fresh /run: what it points to is what is made. */
#define MAX_LINKS 8

static int make_file(int root, const char *folder, const char *name, struct jail_error *err)
{
	scoped_fd parent = jail_resolve_create(root, folder, JAIL_CREATE_DIR, err);

	if (parent < 0)
		return -1;
	/* Mode 0000, so that `enroot export` knows that it is but a place to mount on. */
	if (!sys_mknodat(parent, name, S_IFREG, 0) || errno == EEXIST)
		return 0;
	return jail_fail(err, "mknodat", errno, "cannot make the place to mount on; is the container's root writable?");
}

static int make_folder(int root, const char *path, struct jail_error *err)
{
	scoped_fd made = jail_resolve_create(root, path, JAIL_CREATE_DIR, err);

	/* Without it, only a link's content tells what is missing. */
	return made < 0 && err->number != ENOENT ? -1 : 0;
}

/* Replaces `path`, a link, by what it points to, as seen from the root. Returns false where it is none. */
static bool follow(int root, char path[PATH_MAX])
{
	char content[PATH_MAX / 2], copy[PATH_MAX];
	struct jail_error ignored;

	snprintf(copy, sizeof(copy), "%s", path);
	char *slash = strrchr(copy, '/');
	if (!slash)
		return false;
	*slash = '\0';
	scoped_fd parent = jail_resolve(root, *copy ? copy : "/", 0, &ignored);
	ssize_t length = parent < 0 ? -1 : readlinkat(parent, slash + 1, content, sizeof(content) - 1);
	if (length <= 0)
		return false;
	content[length] = '\0';
	return snprintf(path, PATH_MAX, "%s/%s", content[0] == '/' ? "" : copy, content) < PATH_MAX;
}

/* Opens `target`, and makes what is missing of it. */
static int open_target(int root, const char *target, enum fstab_create create, struct jail_error *err)
{
	char path[PATH_MAX], folder[PATH_MAX];
	int fd = jail_resolve(root, target, 0, err);

	if (fd >= 0 || create == FSTAB_CREATE_NONE || err->number != ENOENT)
		return fd;
	snprintf(path, sizeof(path), "%s%s", target[0] == '/' ? "" : "/", target);
	for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';)
		path[--end] = '\0';
	for (int links = 0; links < MAX_LINKS; links++) {
		snprintf(folder, sizeof(folder), "%s", path);
		char *slash = strrchr(folder, '/');
		*slash = '\0';
		if (create == FSTAB_CREATE_DIR ? make_folder(root, path, err)
		    : make_file(root, *folder ? folder : "/", slash + 1, err))
			break;
		fd = jail_resolve(root, target, 0, err);
		if (fd >= 0 || err->number != ENOENT || !follow(root, path))
			break;
	}
	if (fd < 0)
		jail_error_at(err, NULL, 0, target);
	return fd;
}

/* Those that a user namespace locks together. */
#define MOUNT_ATTR_TIMES (MOUNT_ATTR__ATIME | MOUNT_ATTR_NODIRATIME)

static int propagation_of(const struct fstab_entry *entry, int mount, struct jail_error *err)
{
	const struct mount_attr propagation = { .propagation = entry->propagation };
	unsigned flags = AT_EMPTY_PATH | (entry->propagation_recursive ? AT_RECURSIVE : 0U);

	if (entry->propagation && sys_mount_attributes(mount, "", flags, &propagation))
		return jail_fail(err, "mount_setattr", errno, "cannot set the propagation of the mount");
	return 0;
}

static int attributes_of(const struct fstab_entry *entry, int mount, bool deep, struct jail_error *err)
{
	struct mount_attr attributes = { .attr_set = entry->set, .attr_clr = entry->clear };
	unsigned flags = AT_EMPTY_PATH | (deep ? AT_RECURSIVE : 0U);

	/* In a user namespace the flags of mounts from outside are locked: what cannot be cleared stays. */
	if ((entry->set || entry->clear) && sys_mount_attributes(mount, "", flags, &attributes)) {
		attributes.attr_clr = entry->set & MOUNT_ATTR__ATIME ? MOUNT_ATTR__ATIME : 0;
		bool refused = errno == EPERM && sys_mount_attributes(mount, "", flags, &attributes);
		/* How times of access are kept is locked as a whole. */
		attributes.attr_set &= ~MOUNT_ATTR_TIMES;
		attributes.attr_clr = 0;
		if (errno != EPERM || (refused && sys_mount_attributes(mount, "", flags, &attributes)))
			return jail_fail(err, "mount_setattr", errno, "cannot set the options of the mount");
	}
	return propagation_of(entry, mount, err);
}

/* A path below the container's own root is looked up in it: a link of the image must not lead to the host. */
static int open_source(const struct fstab_entry *entry, int root, const char *top, struct jail_error *err)
{
	size_t length = strlen(top);
	unsigned deep = entry->recursive ? AT_RECURSIVE : 0;

	if (strncmp(entry->source, top, length) || (entry->source[length] != '/' && entry->source[length]))
		return jail_filesystem_clone(entry->source, entry->recursive, 0, 0, err);
	scoped_fd inside = jail_resolve(root, entry->source[length] ? entry->source + length : "/", 0, err);
	if (inside < 0)
		return -1;
	int mount = sys_open_tree(inside, "", OPEN_TREE_CLONE | AT_EMPTY_PATH | deep);
	return mount < 0 ? jail_fail(err, "open_tree", errno, "cannot take the source \"%s\"", entry->source) : mount;
}

static int new_filesystem(const struct fstab_entry *entry, struct jail_error *err)
{
	struct jail_parameter parameters[FSTAB_MAX_DATA + 1] = { { "source", entry->source } };
	char keys[FSTAB_MAX_DATA][64];

	for (size_t i = 0; i < entry->n_data; i++) {
		const char *equals = strchr(entry->data[i], '=');
		snprintf(keys[i], sizeof(keys[i]), "%.*s", equals ? (int)(equals - entry->data[i]) : 63, entry->data[i]);
		parameters[i + 1].key = keys[i];
		parameters[i + 1].value = equals ? equals + 1 : NULL;
	}
	return jail_filesystem_new(entry->type, parameters, entry->n_data + 1, entry->set, err);
}

static int attach(int mount, const struct fstab_entry *entry, int root, struct jail_error *err)
{
	struct stat st;
	enum fstab_create create = entry->create;

	if (create == FSTAB_CREATE_AUTO)
		create = !fstat(mount, &st) && !S_ISDIR(st.st_mode) ? FSTAB_CREATE_FILE : FSTAB_CREATE_DIR;
	scoped_fd target = open_target(root, entry->target, create, err);
	if (target < 0)
		return -1;
	if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, errno == ENOTDIR || errno == EINVAL
				 ? "cannot mount it there; is one a directory and the other a file?" : "cannot mount it there");
	return 0;
}

static int detach(const struct fstab_entry *entry, int root, struct jail_error *err)
{
	char path[40];
	scoped_fd target = jail_resolve(root, entry->target, 0, err);

	if (target < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", target);
	if (sys_umount2(path, JAIL_MNT_DETACH))
		return jail_fail(err, "umount2", errno, errno == EINVAL
				 ? "nothing is mounted there, or it came from the host" : "cannot unmount it");
	return 0;
}

static int apply_mount(const struct fstab_entry *entry, int root, const char *top, struct jail_error *err)
{
	scoped_fd mount = -1;

	switch (entry->action) {
	case FSTAB_DETACH:
		return detach(entry, root, err);
	case FSTAB_REMOUNT:
		mount = jail_resolve(root, entry->target, 0, err);
		return mount < 0 ? -1 : attributes_of(entry, mount, false, err);
	case FSTAB_MOVE:
		mount = sys_open_tree(AT_FDCWD, entry->source, 0);
		if (mount < 0)
			return jail_fail(err, "open_tree", errno, "cannot take the source \"%s\"", entry->source);
		return attributes_of(entry, mount, false, err) || attach(mount, entry, root, err) ? -1 : 0;
	case FSTAB_BIND:
		/* An image's volume is its own source and may have to be made first. */
		if (entry->create == FSTAB_CREATE_DIR && text_starts(entry->source, top)) {
			scoped_fd made = open_target(root, entry->target, entry->create, err);
			if (made < 0)
				return -1;
		}
		mount = open_source(entry, root, top, err);
		return mount < 0 || attributes_of(entry, mount, entry->recursive, err) ||
		       attach(mount, entry, root, err) ? -1 : 0;
	default:
		mount = new_filesystem(entry, err);
		return mount < 0 || propagation_of(entry, mount, err) || attach(mount, entry, root, err) ? -1 : 0;
	}
}

int fstab_apply(const struct fstab_entry *entry, int root, const char *top, struct jail_error *err)
{
	char text[1400];

	if (!apply_mount(entry, root, top, err))
		return 0;
	jail_error_at(err, NULL, 0, entry->target);
	if (!entry->nofail)
		return -1;
	/* What is merely not there needs no word. */
	if (!entry->silent && err->number != ENOENT)
		report_warning("left out: %s", jail_error_format(err, text, sizeof(text)));
	return 0;
}

int fstab_apply_text(const char *text, const char *name, bool first, int root, const char *top,
		     const struct expand_request *variables, struct jail_error *err)
{
	scoped_free char *copy = text_copy(text, strlen(text));
	char *rest = copy, *line;

	for (int number = 1; (line = strsep(&rest, "\n")); number++) {
		struct fstab_entry entry;
		int found = fstab_parse(line, variables, &entry, err);
		if (found < 0)
			return jail_error_at(err, name, number, NULL);
		int result = !found || (entry.pass < 0) != first ? 0 : fstab_apply(&entry, root, top, err);
		fstab_entry_free(&entry);
		if (result)
			return jail_error_at(err, name, number, NULL);
	}
	return 0;
}
