/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses to join a running container that lacks what the step's options ask for, such as a
 * mount. container.c calls it. */
#define _GNU_SOURCE
#include "join_check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "native/container/fstab.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "step_namespaces.h"

/* The process in the container, and its root. Descriptors: a number may become another process's, a path lead elsewhere. */
struct joined {
	const struct pyxis_container *container;
	int process; /* /proc/PID */
	int root;
};

static int lacks(const struct joined *joined, const char *option, const char *what, struct jail_error *err)
{
	return jail_fail(err, NULL, 0, "%s: the container \"%s\" runs already, and %s", option, joined->container->request->name, what);
}

static int check_namespaces(const struct joined *joined, struct jail_error *err)
{
	scoped_namespaces own = PYXIS_NAMESPACES_NONE;
	struct stat ours, theirs;

	if (pyxis_namespaces_note(&own, joined->container->unshare, err))
		return -1;
	for (unsigned i = 0; i < PYXIS_NAMESPACES; i++) {
		const char *name = pyxis_namespace_name(i);
		scoped_free char *path = text_format("ns/%s", name);
		scoped_fd fd = own.before[i] < 0 ? -1 : openat(joined->process, path, O_RDONLY | O_CLOEXEC);
		if (own.before[i] < 0)
			continue;
		if (fd < 0 || fstat(fd, &theirs) || fstat(own.before[i], &ours))
			return jail_fail(err, "open", errno, "cannot tell which %s namespace the container is in", name);
		if (ours.st_dev != theirs.st_dev || ours.st_ino != theirs.st_ino)
			continue;
		scoped_free char *option = text_format("--container-unshare=%s", name);
		scoped_free char *what = text_format("has no %s namespace of its own: it shares the node's", name);
		return lacks(joined, option, what, err);
	}
	return 0;
}

static int check_root_id(const struct joined *joined, struct jail_error *err)
{
	enum pyxis_switch asked = joined->container->request->remap_root;
	unsigned inside, outside;

	/* Root is root in each. */
	if (asked == PYXIS_UNSET || !joined->container->owner.uid)
		return 0;
	scoped_free char *map = text_read(joined->process, "uid_map", 4096, NULL, err);
	if (!map)
		return -1;
	if (sscanf(map, "%u %u", &inside, &outside) != 2)
		return jail_fail(err, NULL, 0, "cannot tell who one is in the container");
	if (asked == PYXIS_YES && inside)
		return lacks(joined, "--container-remap-root", "its user is not root in it", err);
	if (asked == PYXIS_NO && !inside)
		return lacks(joined, "--no-container-remap-root", "its user is root in it", err);
	return 0;
}

static int check_writable(const struct joined *joined, struct jail_error *err)
{
	enum pyxis_switch asked = joined->container->request->writable;
	struct statvfs fs;

	if (asked == PYXIS_UNSET)
		return 0;
	if (fstatvfs(joined->root, &fs))
		return jail_fail(err, "fstatvfs", errno, "cannot tell whether the container's root can be written");
	bool readonly = fs.f_flag & ST_RDONLY;
	if (asked == PYXIS_NO && !readonly)
		return lacks(joined, "--container-readonly", "its root can be written", err);
	if (asked == PYXIS_YES && readonly)
		return lacks(joined, "--container-writable", "its root is read-only", err);
	return 0;
}

/* Links lead to places in it. -1 and errno. */
static int open_inside(const struct joined *joined, const char *path)
{
	return sys_openat2(joined->root, path, O_PATH | O_CLOEXEC, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

/* Whether what the container has at `inside` is what the step has at `outside`. */
static bool is_shown(const struct joined *joined, const char *outside, const char *inside)
{
	scoped_fd own = open(outside, O_PATH | O_CLOEXEC), theirs = open_inside(joined, inside);
	struct stat a, b;

	return own >= 0 && theirs >= 0 && !fstat(own, &a) && !fstat(theirs, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static const char *nothing(void *context, const char *name)
{
	(void)context;
	(void)name;
	return NULL;
}

/* As the step asked for it when it was srun's: a line that was checked there. */
static int parse(const char *line, struct fstab_entry *entry, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, nothing, NULL };

	*entry = (struct fstab_entry){ 0 };
	return fstab_parse(line, &variables, entry, err) > 0 ? 0 : -1;
}

/* Whether a mount that is asked for shows `path`, or something above it. */
static bool is_mounted_over(const struct pyxis_request *request, const char *path)
{
	bool found = false;

	for (size_t i = 0; i < request->mounts.n && !found; i++) {
		struct fstab_entry entry;
		struct jail_error ignored;
		if (!parse(request->mounts.items[i], &entry, &ignored)) {
			size_t length = strlen(entry.target);
			while (length && entry.target[length - 1] == '/')
				length--;
			found = !strncmp(path, entry.target, length) && (path[length] == '/' || !path[length]);
		}
		fstab_entry_free(&entry);
	}
	return found;
}

static int check_home(const struct joined *joined, struct jail_error *err)
{
	const struct pyxis_container *container = joined->container;
	enum pyxis_switch asked = container->request->mount_home;
	const char *home = variables_get(&container->environment, "HOME");
	const struct passwd *account = home && *home == '/' ? NULL : getpwuid(container->owner.uid);

	if (account)
		home = account->pw_dir;
	if (asked == PYXIS_UNSET || !home || *home != '/')
		return 0;
	/* Root's in a container is /root, whosever it is. */
	bool shown = is_shown(joined, home, home) || (container->owner.uid && is_shown(joined, home, "/root"));
	if (asked == PYXIS_YES && !shown)
		return lacks(joined, "--container-mount-home", "the home directory is not in it", err);
	if (asked == PYXIS_NO && shown && !is_mounted_over(container->request, home))
		return lacks(joined, "--no-container-mount-home", "the home directory is in it", err);
	return 0;
}

/* "./x" is below the directory that enroot would have been begun in: the task's. */
static bool mount_is_there(const struct joined *joined, const struct fstab_entry *entry)
{
	scoped_fd fd = open_inside(joined, entry->target);
	struct statvfs flags;
	struct statfs fs;

	if (entry->action == FSTAB_DETACH)
		return !is_shown(joined, entry->target, entry->target);
	if (fd < 0 || fstatfs(fd, &fs) || fstatvfs(fd, &flags))
		return false;
	if ((entry->set & MOUNT_ATTR_RDONLY) && !(flags.f_flag & ST_RDONLY))
		return false;
	return entry->action == FSTAB_BIND ? is_shown(joined, entry->source, entry->target) : fs.f_type == TMPFS_MAGIC;
}

static int check_mounts(const struct joined *joined, struct jail_error *err)
{
	const struct text_list *mounts = &joined->container->request->mounts;

	for (size_t i = 0; i < mounts->n; i++) {
		struct fstab_entry entry;
		if (parse(mounts->items[i], &entry, err))
			return -1;
		bool there = mount_is_there(joined, &entry);
		scoped_free char *what = there ? NULL
			: text_format(entry.action == FSTAB_DETACH ? "has something mounted at %s"
				      : "does not have this at %s, or not as it is asked for", entry.target);
		fstab_entry_free(&entry);
		if (!there)
			return lacks(joined, "--container-mounts", what, err);
	}
	return 0;
}

int pyxis_join_check(const struct pyxis_container *container, struct jail_error *err)
{
	scoped_free char *path = text_format("/proc/%d", (int)container->member);
	scoped_fd process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	scoped_fd root = process < 0 ? -1 : openat(process, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct joined joined = { container, process, root };

	if (root < 0)
		return jail_fail(err, "open", errno, "cannot look into the container \"%s\", which runs already",
				 container->request->name);
	return check_namespaces(&joined, err) || check_root_id(&joined, err) || check_writable(&joined, err) || check_home(&joined, err) ||
	       check_mounts(&joined, err) ? -1 : 0;
}
