/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a directory of the node, such as PMIx's, to a container's mounts without the user asking, if the node has it.
 * pmix.c and pyxis/slurm call it. */
#define _GNU_SOURCE
#include "implicit_mounts.h"

#include <stdlib.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "pyxis/options/request.h"

void pyxis_implicit_mounts_add(const char *path, const char *flags, struct text_list *places)
{
	scoped_free char *mount = text_format("%s:%s%s", path, path, flags);
	scoped_free char *source = NULL;
	struct jail_error ignored;
	char *line = access(path, F_OK) ? NULL : pyxis_mount_line(mount, &source, &ignored);

	if (line)
		text_list_take(places, line);
}
