/* SPDX-License-Identifier: Apache-2.0 */
/* Links stubs, the image's empty libraries, beside the driver's libraries, for those that the node's driver lacks.
 * apply.c calls it.
 *
 * The jail's ld.so.cache is one for all nodes. If a library were missing here, ldconfig run by a job on this node
 * would drop its name, and nodes whose driver has the library would no longer find it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "apply.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"

#define STUBS ".stubs"
/* The image has twenty. The directory is the jail's, so a user may have put any number there. */
#define MAX_STUBS 200

int jail_cdi_show_stubs(int part, int stubs, struct jail_error *err)
{
	if (sys_mkdirat(part, STUBS, 0755))
		return jail_fail(err, "mkdirat", errno, "cannot make the place for the stubs");
	if (sys_move_mount(stubs, "", part, STUBS, MOVE_MOUNT_F_EMPTY_PATH))
		return jail_fail(err, "move_mount", errno, "cannot show the image's stubs beside the driver");
	return 0;
}

int jail_cdi_link_stubs(int part, struct jail_error *err)
{
	char content[300];
	struct dirent *entry;
	int result = 0, fd = sys_openat2(part, STUBS, O_RDONLY | O_DIRECTORY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	DIR *stubs = fd < 0 ? NULL : fdopendir(fd);

	if (!stubs) {
		jail_fail(err, "openat2", errno, "cannot read the image's stubs");
		jail_close(&fd);
		return -1;
	}
	for (unsigned n = 0; n < MAX_STUBS && !result && (entry = readdir(stubs));) {
		if (!jail_cdi_is_library(entry->d_name))
			continue;
		n++;
		snprintf(content, sizeof(content), STUBS "/%s", entry->d_name);
		result = jail_cdi_link(part, entry->d_name, content, err);
	}
	closedir(stubs);
	return result;
}
