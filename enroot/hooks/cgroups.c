/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts /sys/fs/cgroup anew in the container, so that it begins at the container's own cgroup. container/hooks.c
 * calls it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "hook.h"

#define TOP "/sys/fs/cgroup"
#define OPTIONS "bind,ro,nosuid,nodev,noexec,nofail,silent"

/* Where the hierarchy of a line "ID:CONTROLLERS:PATH" of /proc/self/cgroup is mounted; the caller frees it. */
static char *hierarchy(const char *controllers, size_t length)
{
	struct jail_error ignored;

	if (!length) {
		/* Version 2: alone, or beside version 1 in a directory of its own. */
		scoped_free char *alone = text_read(AT_FDCWD, TOP "/cgroup.controllers", 65536, NULL, &ignored);
		return text_format("%s", alone ? TOP : TOP "/unified");
	}
	if (length > 5 && !strncmp(controllers, "name=", 5)) {
		controllers += 5;
		length -= 5;
	}
	return text_format(TOP "/%.*s", (int)length, controllers);
}

/* A cgroup namespace makes /proc/self/cgroup begin at this process's own cgroup; /sys/fs/cgroup, which came from the
 * host, is to begin there as well, or programs read the limits of the whole node. */
int hook_cgroups(struct container *container, struct jail_error *err)
{
	struct jail_error unknown;
	scoped_free char *text = text_read(AT_FDCWD, "/proc/self/cgroup", 65536, NULL, &unknown);

	/* In the project's jail both show the node's whole tree, and fit together as they are. */
	if (!text || sys_unshare(CLONE_NEWCGROUP))
		return 0;
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path || !strcmp(path + 1, "/"))
			continue;
		scoped_free char *top = hierarchy(controllers + 1, (size_t)(path - controllers - 1));
		scoped_free char *mount = text_format("%s%s %s none " OPTIONS "\n", top, path + 1, top);
		if (strpbrk(path, " \t\\$"))
			continue; /* nobody names a cgroup so */
		if (hook_mount(container, mount, err))
			return -1;
	}
	return 0;
}
