/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a small file in a container's root, without following symbolic links out of it. environment.c,
 * hold_container.c, mounts.c and enroot/hooks/root_files.c call it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>

#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "container.h"

char *container_read(int root, const char *path, size_t limit)
{
	struct jail_error missing;
	struct stat st;
	scoped_fd fd = jail_resolve(root, path, 0, &missing);
	scoped_free char *name = text_format("/proc/self/fd/%d", fd);

	return fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ? NULL : text_read(AT_FDCWD, name, limit, NULL, &missing);
}
