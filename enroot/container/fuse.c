/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts a FUSE file system for a container: opens and mounts /dev/fuse, and starts the program that serves it.
 * image_mount.c, overlay.c and root.c call it. */
#define _GNU_SOURCE
#include "fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/text.h"

char *fuse_instead(const char *image, unsigned long long offset)
{
	return offset ? text_format("unpack it first: %s --keep", image)
	       : text_format("make a root from the image first: enroot create %s", image);
}

int fuse_open(const char *image, unsigned long long offset, struct jail_error *err)
{
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC), number = errno;

	if (device >= 0)
		return device;
	scoped_free char *instead = fuse_instead(image, offset);
	jail_fail(err, "open", number, "images are mounted by FUSE; %s. Without it, %s", number == EACCES
		  ? "the administrator allows it with: chmod 0666 /dev/fuse"
		  : "the administrator loads the module fuse, or gives the container this device", instead);
	return jail_error_at(err, NULL, 0, "/dev/fuse");
}

int fuse_mount(int device, const char *source, uid_t uid, gid_t gid, unsigned attributes, struct jail_error *err)
{
	char number[16], user[16], group[16];

	snprintf(number, sizeof(number), "%d", device);
	snprintf(user, sizeof(user), "%u", (unsigned)uid);
	snprintf(group, sizeof(group), "%u", (unsigned)gid);
	const struct jail_parameter parameters[] = {
		{ "source", source }, { "fd", number },	{ "rootmode", "40000" }, { "user_id", user },
		{ "group_id", group }, { "allow_other", NULL }, { "default_permissions", NULL },
	};
	return jail_filesystem_new("fuse", parameters, sizeof(parameters) / sizeof(parameters[0]), attributes, err);
}

void fuse_detach(int log)
{
	scoped_fd nothing = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_DFL);
	dup2(nothing, STDIN_FILENO);
	dup2(nothing, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
}

void fuse_serve(const char *program, char **arguments, int device)
{
	char mountpoint[32];
	size_t last = 0;

	snprintf(mountpoint, sizeof(mountpoint), "/dev/fd/%d", device);
	while (arguments[last])
		last++;
	arguments[last] = mountpoint;
	fcntl(device, F_SETFD, 0);
	close_range(3, (unsigned)device - 1, 0);
	close_range((unsigned)device + 1, ~0U, 0);
	execv(program, arguments);
	_exit(127);
}

void fuse_said(int log, char *text, size_t size)
{
	ssize_t got = pread(log, text, size - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
}
