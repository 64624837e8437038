/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts, reads, writes and links files in the container's root, without following symbolic links out of it. The
 * hooks in this folder call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "enroot/container/fstab_apply.h"
#include "hook.h"

#define MAX_FILE (4 * 1024 * 1024)

int hook_mount(struct container *container, const char *line, struct jail_error *err)
{
	const struct expand_request variables = { EXPAND_BRACES, container_lookup, container };

	return fstab_apply_text(line, "hook", false, container->root, container->top, &variables, err);
}

bool hook_there(const struct container *container, const char *path)
{
	struct jail_error missing;
	scoped_fd fd = jail_resolve(container->root, path, 0, &missing);

	return fd >= 0;
}

char *hook_read(const struct container *container, const char *path)
{
	char *text = container_read(container->root, path, MAX_FILE);

	return text ? text : text_copy("", 0);
}

/* By rename: another container on the same root reads the old file or the new one. */
static int replace(int folder, const char *name, const char *text, mode_t mode)
{
	scoped_free char *temporary = text_format(".%s.enroot", name);
	/* An image may have this name, too: for a FIFO, or for another file of its own. */
	(void)unlinkat(folder, temporary, 0);
	scoped_fd fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

	if (fd < 0)
		return -1;
	if (!text_write(fd, text, strlen(text)) && !renameat(folder, temporary, folder, name))
		return 0;
	int number = errno;
	unlinkat(folder, temporary, 0);
	errno = number;
	return -1;
}

int hook_write(struct container *container, const char *folder, const char *name, const char *text, mode_t mode,
	       struct jail_error *err)
{
	scoped_free char *path = text_format("%s/%s", folder, name);
	scoped_free char *now = hook_read(container, path);
	struct jail_error missing;

	if (!strcmp(now, text))
		return 0;
	scoped_fd parent = jail_resolve_create(container->root, folder, JAIL_CREATE_DIR, &missing);
	if (parent >= 0 && !replace(parent, name, text, mode))
		return 0;
	if (parent >= 0 && errno != EACCES && errno != EROFS && errno != EPERM) {
		jail_fail(err, "write", errno, "cannot write it in the container");
		return jail_error_at(err, NULL, 0, path);
	}
	if (container_write(container, name, text, mode, err))
		return -1;
	scoped_free char *from = fstab_field(container->work);
	scoped_free char *line = text_format("%s/%s %s none bind,ro,nosuid,nodev,noexec,nofail\n", from, name, path);
	return hook_mount(container, line, err);
}

int hook_link(struct container *container, const char *path, const char *content, struct jail_error *err)
{
	const char *slash = strrchr(path, '/');
	scoped_free char *folder = text_copy(path, (size_t)(slash - path));
	scoped_fd parent = jail_resolve_create(container->root, *folder ? folder : "/", JAIL_CREATE_DIR, err);

	if (parent < 0)
		return -1;
	if (!symlinkat(content, parent, slash + 1) || errno == EEXIST)
		return 0;
	jail_fail(err, "symlinkat", errno, "cannot make the link in the container");
	return jail_error_at(err, NULL, 0, path);
}
