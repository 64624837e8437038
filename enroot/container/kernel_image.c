/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts an image with the kernel's own squashfs, through a loop device, if root made the file. image_mount.c is for
 * all others. root.c calls it. */
#define _GNU_SOURCE
#include "kernel_image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/trust.h"
#include "native/base/report.h"

/* Others take free devices as well. */
#define ATTEMPTS 64

/* A loop device over `file` from `offset` on; it is gone with its last user. Its path goes to `path`. */
static int loop_open(int file, unsigned long long offset, char path[32], struct jail_error *err)
{
	const struct loop_config config = {
		.fd = (unsigned)file,
		.info = { .lo_offset = offset, .lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR },
	};
	scoped_fd control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	if (control < 0)
		return jail_fail(err, "open", errno, "/dev/loop-control cannot be used");
	for (int i = 0; i < ATTEMPTS; i++) {
		int number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return jail_fail(err, "ioctl", errno, "there is no free loop device");
		snprintf(path, 32, "/dev/loop%d", number);
		scoped_fd loop = open(path, O_RDONLY | O_CLOEXEC);
		if (loop < 0)
			return jail_fail(err, "open", errno, "%s cannot be used", path);
		if (!ioctl(loop, LOOP_CONFIGURE, &config))
			return jail_keep(&loop);
		if (errno != EBUSY)
			return jail_fail(err, "ioctl", errno, "%s takes no image", path);
	}
	return jail_fail(err, "ioctl", EBUSY, "others take every free loop device");
}

static int mount_by_kernel(const struct container *container, struct jail_error *err)
{
	char path[32];
	const struct jail_parameter parameters[] = { { "source", path }, { "ro", NULL } };

	if (geteuid())
		return jail_fail(err, NULL, 0, "the kernel mounts images for root alone, not in a user's namespace");
	scoped_fd file = jail_open_trusted(container->image, 0, "image", err);
	if (file < 0)
		return -1;
	scoped_fd loop = loop_open(file, container->offset, path, err);
	if (loop < 0)
		return -1;
	return jail_filesystem_new("squashfs", parameters, 2, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
}

int kernel_image_mount(const struct container *container)
{
	struct jail_error err;
	char text[1400];

	if (!settings_true(container->settings, "ENROOT_KERNEL_IMAGES"))
		return -1;
	int mount = mount_by_kernel(container, &err);
	/* A user's starts are no mistake where root's are meant. */
	if (mount < 0 && !geteuid())
		report_warning("ENROOT_KERNEL_IMAGES: squashfuse serves the image instead: %s",
			       jail_error_format(&err, text, sizeof(text)));
	return mount;
}
