/* SPDX-License-Identifier: Apache-2.0 */
/* Gives a step the net, ipc and uts namespaces that --container-unshare asks for, and checks that it is in them.
 * native/container/namespaces.c makes the user and mount namespace. container.c, join_check.c and task.c call it. */
#define _GNU_SOURCE
#include "step_namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"

static const struct { const char *name, *setting; } namespace_kinds[PYXIS_NAMESPACES] = {
	{ "net", "ENROOT_UNSHARE_NET" }, { "ipc", "ENROOT_UNSHARE_IPC" }, { "uts", "ENROOT_UNSHARE_UTS" },
};

const char *pyxis_namespace_name(unsigned i)
{
	return namespace_kinds[i].name;
}

unsigned pyxis_namespaces_asked(const struct settings *settings)
{
	unsigned asked = 0;

	for (unsigned i = 0; i < PYXIS_NAMESPACES; i++)
		if (settings_true(settings, namespace_kinds[i].setting))
			asked |= 1U << i;
	return asked;
}

int pyxis_namespaces_note(struct pyxis_namespaces *namespaces, unsigned asked, struct jail_error *err)
{
	namespaces->folder = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < PYXIS_NAMESPACES; i++) {
		if (!(asked & 1U << i))
			continue;
		namespaces->before[i] = openat(namespaces->folder, namespace_kinds[i].name, O_RDONLY | O_CLOEXEC);
		if (namespaces->before[i] < 0)
			return jail_fail(err, "open", errno, "cannot tell which %s namespace the step is in",
					 namespace_kinds[i].name);
	}
	return 0;
}

int pyxis_namespaces_check(const struct pyxis_namespaces *namespaces, struct jail_error *err)
{
	struct stat before, now;

	for (unsigned i = 0; i < PYXIS_NAMESPACES; i++) {
		if (namespaces->before[i] < 0)
			continue;
		if (fstat(namespaces->before[i], &before) || fstatat(namespaces->folder, namespace_kinds[i].name, &now, 0))
			return jail_fail(err, "stat", errno, "cannot tell which %s namespace the container is in",
					 namespace_kinds[i].name);
		if (before.st_dev == now.st_dev && before.st_ino == now.st_ino)
			return jail_fail(err, NULL, 0, "--container-unshare=%s: the container is in the %s namespace of the step",
					 namespace_kinds[i].name, namespace_kinds[i].name);
	}
	return 0;
}

void pyxis_namespaces_done(struct pyxis_namespaces *namespaces)
{
	jail_close(&namespaces->folder);
	for (unsigned i = 0; i < PYXIS_NAMESPACES; i++)
		jail_close(&namespaces->before[i]);
}
