/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts a squashfs image with the program squashfuse, without privileges. root.c calls it. */
#define _GNU_SOURCE
#include "image_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/program.h"
#include "fuse.h"

/* Names and attributes of a file that never changes: the kernel need not ask again. */
#define FOR_EVER "86400"

/* With the lock that says that it is in use: of an image of the cache, which then is not trimmed, on whatever node. -1 where
 * it cannot be read: squashfuse says why. */
static int open_used(const char *image)
{
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
	int fd = open(image, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	/* Where there are no locks, or somebody writes it, it is as good, but for trimming. */
	if (fd >= 0)
		(void)fcntl(fd, F_OFD_SETLK, &lock);
	return fd;
}

static void serve_image(const char *program, const char *image, unsigned long long offset, const struct image_server *server,
			int gate, int used, uid_t uid, gid_t gid)
{
	char options[160], name[] = "squashfuse", in_foreground[] = "-f", flag[] = "-o", byte;

	fuse_detach(server->log);
	/* It reads no input, and so keeps the lock. */
	if (used >= 0)
		dup2(used, STDIN_FILENO);
	if (chdir("/") || read(gate, &byte, 1) != 1)
		_exit(0);
	snprintf(options, sizeof(options), "uid=%u,gid=%u,offset=%llu,kernel_cache,entry_timeout=" FOR_EVER
		 ",attr_timeout=" FOR_EVER ",negative_timeout=" FOR_EVER, (unsigned)uid, (unsigned)gid, offset);
	char *arguments[] = { name, in_foreground, flag, options, (char *)(uintptr_t)image, NULL, NULL };
	fuse_serve(program, arguments, server->device);
}

int image_server_prepare(struct image_server *server, const char *image, unsigned long long offset, uid_t uid,
			 gid_t gid, struct jail_error *err)
{
	int ends[2];
	scoped_free char *program = program_find("squashfuse"), *instead = fuse_instead(image, offset);

	if (!program)
		return jail_fail(err, NULL, ENOENT, "the program squashfuse, which mounts images, is not installed; install it, "
				 "or %s", instead);
	server->device = fuse_open(image, offset, err);
	if (server->device < 0)
		return -1;
	/* The child finds it at a number of its own above the standard streams. */
	server->log = memfd_create("squashfuse", MFD_CLOEXEC);
	if (server->log < 0 || pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot start squashfuse");
	server->gate = ends[1];
	scoped_fd used = open_used(image);
	pid_t pid = fork();
	if (!pid) {
		close(ends[1]);
		serve_image(program, image, offset, server, ends[0], used, uid, gid);
	}
	close(ends[0]);
	return pid < 0 ? jail_fail(err, "fork", errno, "cannot start squashfuse") : 0;
}

int image_server_mount(struct image_server *server, const char *image, uid_t uid, gid_t gid, struct jail_error *err)
{
	scoped_fd mount = fuse_mount(server->device, image, uid, gid,
				     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY, err);

	if (mount < 0)
		return -1;
	/* With the server's alone open, its end ends the mount, and nobody waits for an answer for ever. */
	jail_close(&server->device);
	if (text_write(server->gate, "", 1))
		return jail_fail(err, "write", errno, "squashfuse ended before it began");
	return jail_keep(&mount);
}

void image_server_explain(const struct image_server *server, const char *image, struct jail_error *err)
{
	char text[256];

	fuse_said(server->log, text, sizeof(text));
	jail_fail(err, NULL, 0, "squashfuse cannot mount the image%s%s; it is damaged, or of a compression that this squashfuse was built "
		  "without: make or copy it again",
		  text[0] ? ": " : "", text);
	jail_error_at(err, NULL, 0, image);
}

void image_server_close(struct image_server *server)
{
	jail_close(&server->gate);
	jail_close(&server->device);
	jail_close(&server->log);
}
