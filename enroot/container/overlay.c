/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a tmpfs over a read-only image, with overlayfs or fuse-overlayfs, so that the container can write. root.c
 * calls it. */
#define _GNU_SOURCE
#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/mount/namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/program.h"
#include "fuse.h"

int overlay_native(const struct container *container, const struct overlay *overlay, struct jail_error *err)
{
	const struct jail_parameter parameters[] = {
		{ "source", container->image }, { "lowerdir", overlay->lower }, { "upperdir", overlay->upper },
		{ "workdir", overlay->work },
		/* Of a user's namespace; without it whiteouts work, and a directory cannot replace a removed one. */
		{ "userxattr", NULL },
	};
	size_t n = sizeof(parameters) / sizeof(parameters[0]);

	return jail_filesystem_new("overlay", parameters, container->privileged ? n - 1 : n, CONTAINER_MOUNT_ATTRIBUTES, err);
}

/* In a copy of the mount namespace: a server within the container's own would keep it alive for ever. The copy has the
 * lower and upper directories, and not the mount that is served. */
static void serve_overlay(const char *program, const struct overlay *overlay, int device, int gate)
{
	struct jail_error ignored;
	char name[] = "fuse-overlayfs", in_foreground[] = "-f", flag[] = "-o", byte;
	char *options = text_format("lowerdir=%s,upperdir=%s,workdir=%s", overlay->lower, overlay->upper, overlay->work);
	char *arguments[] = { name, in_foreground, flag, options, NULL, NULL };

	fuse_detach(overlay->log);
	if (jail_namespace_private(&ignored) || chdir("/") || write(gate, "", 1) != 1)
		_exit(126);
	/* A server that reads from the device before it is mounted gets an error and ends. */
	if (read(gate, &byte, 1) != 1)
		_exit(0);
	fuse_serve(program, arguments, device);
}

int overlay_fuse(const struct container *container, struct overlay *overlay, struct jail_error *err)
{
	int ends[2];
	char byte;
	scoped_free char *program = program_find("fuse-overlayfs");

	if (!program)
		return jail_fail(err, NULL, ENOENT, "the program fuse-overlayfs, which ENROOT_NATIVE_OVERLAYFS=no asks for, is "
				 "not installed; install it, or leave the overlay to the kernel");
	scoped_fd device = fuse_open(container->image, container->offset, err);
	if (device < 0)
		return -1;
	overlay->log = memfd_create("fuse-overlayfs", MFD_CLOEXEC);
	if (overlay->log < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return jail_fail(err, "socketpair", errno, "cannot start fuse-overlayfs");
	pid_t pid = fork();
	if (!pid) {
		close(ends[0]);
		serve_overlay(program, overlay, device, ends[1]);
	}
	close(ends[1]);
	scoped_fd gate = ends[0];
	if (pid < 0)
		return jail_fail(err, "fork", errno, "cannot start fuse-overlayfs");
	if (read(gate, &byte, 1) != 1)
		return jail_fail(err, NULL, 0, "fuse-overlayfs ended before it began");
	scoped_fd mount = fuse_mount(device, container->image, CONTAINER_INSIDE(container, uid),
				     CONTAINER_INSIDE(container, gid), CONTAINER_MOUNT_ATTRIBUTES, err);
	if (mount < 0)
		return -1;
	if (send(gate, "", 1, MSG_NOSIGNAL) != 1)
		return jail_fail(err, "send", errno, "fuse-overlayfs ended before it began");
	return jail_keep(&mount);
}
