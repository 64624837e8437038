/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the root of a container: the directory that `enroot create` made, or a mounted image. start.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "native/mount/filesystem.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/jail/tree.h"
#include "native/base/report.h"
#include "bundled_config.h"
#include "container.h"
#include "fuse.h"
#include "image_mount.h"
#include "kernel_image.h"
#include "overlay.h"
#include "native/container/namespaces.h"
#include "native/container/refusal.h"

#define LOCK_SECONDS 30

static int attach_at(int mount, const char *path, struct jail_error *err)
{
	if (!sys_move_mount(mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH))
		return 0;
	jail_fail(err, "move_mount", errno, "cannot mount there");
	return jail_error_at(err, NULL, 0, path);
}

static int make_work(struct container *container, struct jail_error *err)
{
	static const struct jail_parameter parameters[] = { { "source", "enroot" }, { "mode", "0755" } };
	scoped_fd mount = jail_filesystem_new("tmpfs", parameters, 2, CONTAINER_MOUNT_ATTRIBUTES, err);

	container->work = text_format("%s", settings_get(container->settings, "ENROOT_RUNTIME_PATH"));
	/* The first of the mount API's calls: a filter may allow namespaces and no mounts. */
	if (mount < 0 && (err->number == EPERM || err->number == ENOSPC)) {
		scoped_free char *call = text_format("%s", err->syscall);
		return refusal_explain(call, err->number, "/proc", err);
	}
	return mount < 0 || attach_at(mount, container->work, err) ? -1 : 0;
}

static char *make_work_folder(const struct container *container, const char *name, struct jail_error *err)
{
	char *path = text_format("%s/%s", container->work, name);

	if (!mkdir(path, 0755))
		return path;
	jail_fail(err, "mkdir", errno, "cannot make a directory of the container");
	jail_error_at(err, NULL, 0, path);
	free(path);
	return NULL;
}

/* What a bundle carries takes the place of the user's own files on this machine. */
static int carry(struct container *container, struct jail_error *err)
{
	scoped_free char *folder = container->bundled_config ? make_work_folder(container, "config", err) : NULL;

	if (!container->bundled_config)
		return 0;
	if (!folder || bundled_config_unpack(container->bundled_config, folder, err))
		return -1;
	variables_set(&container->settings->variables, "ENROOT_CONFIG_PATH", folder);
	return 0;
}

static int attach_overlay(struct container *container, const char *lower, struct jail_error *err)
{
	bool native = settings_true(container->settings, "ENROOT_NATIVE_OVERLAYFS");
	scoped_free char *upper = make_work_folder(container, "upper", err);
	scoped_free char *work = upper ? make_work_folder(container, "work", err) : NULL;
	struct overlay overlay = { lower, upper, work, -1 };
	struct stat st;
	char said[256];

	if (!work)
		return -1;
	scoped_fd mount = native ? overlay_native(container, &overlay, err) : overlay_fuse(container, &overlay, err);
	scoped_fd log = overlay.log;
	if (mount < 0 || attach_at(mount, container->top, err))
		return -1;
	/* As below: the first question waits. */
	if (!stat(container->top, &st))
		return 0;
	int number = errno;
	if (log >= 0)
		fuse_said(log, said, sizeof(said));
	jail_fail(err, "stat", number, "the overlay over the image does not answer%s%s", log >= 0 ? "; fuse-overlayfs: " : "",
		  log >= 0 ? said : "");
	return jail_error_at(err, NULL, 0, container->image);
}

static int open_root(struct container *container, struct jail_error *err)
{
	container->root = open(container->top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (container->root >= 0)
		return 0;
	jail_fail(err, "open", errno, "cannot open the container's root");
	return jail_error_at(err, NULL, 0, container->top);
}

/* `kernel` is the image as the kernel's mount, or -1: `server` serves it. */
static int mount_image(struct container *container, struct image_server *server, int kernel, struct jail_error *err)
{
	struct stat st;
	scoped_fd image = kernel >= 0 ? fcntl(kernel, F_DUPFD_CLOEXEC, 0)
			  : image_server_mount(server, container->image, CONTAINER_INSIDE(container, uid),
					       CONTAINER_INSIDE(container, gid), err);
	scoped_free char *lower = image < 0 ? NULL : make_work_folder(container, "lower", err);

	container->top = lower ? make_work_folder(container, "root", err) : NULL;
	if (!container->top || attach_at(image, lower, err))
		return -1;
	/* The first question to the server is the one that waits until it is up. */
	if (stat(lower, &st)) {
		image_server_explain(server, container->image, err);
		return -1;
	}
	return attach_overlay(container, lower, err) || open_root(container, err) ? -1 : 0;
}

static int mount_created(struct container *container, struct jail_error *err)
{
	container->root = jail_tree_attach(container->top, err);
	if (container->root < 0 && err->number == EACCES) {
		jail_fail(err, "open_tree", EACCES, "this user may not enter the container's root; is it another user's? Root is "
			  "nobody to it in a user namespace: ENROOT_ALLOW_SUPERUSER=yes starts without one");
		return jail_error_at(err, NULL, 0, container->top);
	}
	if (container->root < 0)
		return -1;
	if (sys_mount_setattr(container->root, "", AT_EMPTY_PATH, CONTAINER_MOUNT_ATTRIBUTES, JAIL_MS_SLAVE))
		return jail_fail(err, "mount_setattr", errno, "cannot set the options of the container's root");
	return 0;
}

/* One at a time may write into a root while it is set up. Whose root cannot be written needs no lock: nothing
 * of it is changed. */
static int lock(struct container *container, struct jail_error *err)
{
	const struct timespec pause = { 0, 20 * 1000 * 1000 };
	scoped_free char *path = text_format("%s/.lock", container->top);

	container->lock = open(path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (container->lock < 0)
		return 0;
	for (int i = 0; flock(container->lock, LOCK_EX | LOCK_NB); i++) {
		if (errno != EWOULDBLOCK)
			return 0; /* a file system without locks */
		if (i >= LOCK_SECONDS * 50) {
			jail_fail(err, "flock", ETIMEDOUT, "another start has been setting up this container for %d s; end it, "
				  "or try again", LOCK_SECONDS);
			return jail_error_at(err, NULL, 0, path);
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}

int container_root(struct container *container, struct jail_error *err)
{
	struct image_server server = IMAGE_SERVER_NONE;
	int result = 0;

	if (settings_directory(container->settings, "ENROOT_RUNTIME_PATH", err))
		return -1;
	scoped_fd kernel = container->image ? kernel_image_mount(container) : -1;
	if (!container->privileged &&
	    namespaces_make_user(CONTAINER_INSIDE(container, uid), CONTAINER_INSIDE(container, gid), err))
		return -1;
	if (container->image && kernel < 0)
		result = image_server_prepare(&server, container->image, container->offset,
					      CONTAINER_INSIDE(container, uid), CONTAINER_INSIDE(container, gid), err);
	if (!result)
		result = container_pid_namespace(container, err);
	if (!result)
		result = namespaces_make_others(container->settings, err) || make_work(container, err) || carry(container, err) ||
			 (container->image ? mount_image(container, &server, kernel, err) : mount_created(container, err)) ||
			 lock(container, err) ? -1 : 0;
	image_server_close(&server);
	return result;
}

int container_write(const struct container *container, const char *name, const char *text, mode_t mode,
		    struct jail_error *err)
{
	scoped_free char *path = text_format("%s/%s", container->work, name);
	scoped_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	if (fd >= 0 && !text_write(fd, text, strlen(text)))
		return 0;
	jail_fail(err, "write", errno, "cannot write a file of the container");
	return jail_error_at(err, NULL, 0, path);
}
