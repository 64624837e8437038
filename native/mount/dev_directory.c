/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a job's own /dev (lines of type "dev" in a mount plan) with the devices that every job has, such as null.
 * native/jail calls it. */
#define _GNU_SOURCE
#include "dev_directory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

/* Numbers are fixed by the kernel (Documentation/admin-guide/devices.txt). */
static const struct { const char *name; unsigned major, minor; } devices[] = {
	{ "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 }, { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

static const struct { const char *name, *content; } links[] = {
	{ "fd", "/proc/self/fd" }, { "stdin", "/proc/self/fd/0" }, { "stdout", "/proc/self/fd/1" },
	{ "stderr", "/proc/self/fd/2" }, { "ptmx", "pts/ptmx" },
};

static const char *const directories[] = { "pts", "shm", "mqueue" };

/* Where nodes cannot be made (a container without CAP_MKNOD, a user namespace) the node's own device
 * is bound instead; it is the same one, at the cost of a mount. */
static int bind_device(int dev, const char *name, struct jail_error *err)
{
	char source[32];

	if (sys_mknodat(dev, name, S_IFREG | 0666, 0))
		return jail_fail(err, "mknodat", errno, "cannot make the place for device \"%s\"", name);
	snprintf(source, sizeof(source), "/dev/%s", name);
	scoped_fd mount = jail_filesystem_clone(source, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, err);
	if (mount < 0)
		return -1;
	if (sys_move_mount(mount, "", dev, name, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot lay \"%s\" into the private /dev", source);
	return 0;
}

static int make_device(int dev, size_t i, bool *by_bind, struct jail_error *err)
{
	const char *name = devices[i].name;

	if (*by_bind)
		return bind_device(dev, name, err);
	if (sys_mknodat(dev, name, S_IFCHR | 0666, makedev(devices[i].major, devices[i].minor))) {
		if (errno != EPERM)
			return jail_fail(err, "mknodat", errno, "cannot make device \"%s\"", name);
		*by_bind = true;
		return bind_device(dev, name, err);
	}
	return 0;
}

int jail_device_fill(int dev, struct jail_error *err)
{
	bool by_bind = false;

	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (sys_symlinkat(links[i].content, dev, links[i].name))
			return jail_fail(err, "symlinkat", errno, "cannot make the link \"%s\"", links[i].name);
	for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++)
		if (sys_mkdirat(dev, directories[i], 0755))
			return jail_fail(err, "mkdirat", errno, "cannot make the directory \"%s\"", directories[i]);
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (make_device(dev, i, &by_bind, err))
			return -1;
	return 0;
}
