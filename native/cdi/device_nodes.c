/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the device nodes that a CDI specification lists in the jail's /dev. apply.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "apply.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

static int bind_device(const struct jail_cdi_device_node *node, int parent, const char *name, struct jail_error *err)
{
	return jail_cdi_bind(node->host_path, false, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, parent, name, err);
}

static bool is_same(int fd, const struct jail_cdi_device_node *node)
{
	struct stat st;

	return !fstat(fd, &st) && (st.st_mode & S_IFMT) == (node->made_mode & S_IFMT) && st.st_rdev == node->made_device;
}

static int make_node(int parent, const struct jail_cdi_device_node *node, const char *name, struct jail_error *err)
{
	if (sys_mknodat(parent, name, node->made_mode, node->made_device)) {
		/* As in device_nodes.c: where nodes cannot be made, the node's own is bound. */
		if (errno != EPERM)
			return jail_fail(err, "mknodat", errno, "cannot make the device");
		if (sys_mknodat(parent, name, S_IFREG | 0444, 0))
			return jail_fail(err, "mknodat", errno, "cannot make the place for the device");
		return bind_device(node, parent, name, err);
	}
	if ((node->made_uid || node->made_gid) && sys_fchownat(parent, name, node->made_uid, node->made_gid))
		return jail_fail(err, "fchownat", errno, "cannot give the device to uid %u, gid %u", (unsigned)node->made_uid,
				 (unsigned)node->made_gid);
	return 0;
}

int jail_cdi_place_device(const struct jail_cdi_stage *stage, const struct jail_cdi_device_node *node,
			  struct jail_error *err)
{
	struct stat st, volume;
	scoped_fd there = jail_resolve(stage->root, node->path, 0, err);

	if (there < 0 && err->number != ENOENT)
		return -1;
	if (there < 0) {
		scoped_fd parent = jail_cdi_parent(stage, node->path, err);
		return parent < 0 ? -1 : make_node(parent, node, strrchr(node->path, '/') + 1, err);
	}
	/* A step before this one made it in the job's /dev. One on the volume would be dead (nodev). */
	if (is_same(there, node) && !fstat(there, &st) && !fstat(stage->root, &volume) && st.st_dev != volume.st_dev)
		return 0;
	return bind_device(node, there, "", err);
}
