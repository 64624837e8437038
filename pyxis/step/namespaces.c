/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the net, ipc and uts namespaces that a step asks for. container.c, join_check.c and task.c call it. */
#define _GNU_SOURCE
#include "namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/scoped.h"

static const struct { const char *name, *setting; } space_kinds[PYXIS_SPACES] = {
	{ "net", "ENROOT_UNSHARE_NET" }, { "ipc", "ENROOT_UNSHARE_IPC" }, { "uts", "ENROOT_UNSHARE_UTS" },
};

const char *pyxis_space_name(unsigned i)
{
	return space_kinds[i].name;
}

unsigned pyxis_spaces_asked(const struct settings *settings)
{
	unsigned asked = 0;

	for (unsigned i = 0; i < PYXIS_SPACES; i++)
		if (settings_true(settings, space_kinds[i].setting))
			asked |= 1U << i;
	return asked;
}

int pyxis_spaces_note(struct pyxis_spaces *spaces, unsigned asked, struct jail_error *err)
{
	spaces->folder = open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (unsigned i = 0; i < PYXIS_SPACES; i++) {
		if (!(asked & 1U << i))
			continue;
		spaces->before[i] = openat(spaces->folder, space_kinds[i].name, O_RDONLY | O_CLOEXEC);
		if (spaces->before[i] < 0)
			return jail_fail(err, "open", errno, "cannot tell which %s namespace the step is in",
					 space_kinds[i].name);
	}
	return 0;
}

int pyxis_spaces_check(const struct pyxis_spaces *spaces, struct jail_error *err)
{
	struct stat before, now;

	for (unsigned i = 0; i < PYXIS_SPACES; i++) {
		if (spaces->before[i] < 0)
			continue;
		if (fstat(spaces->before[i], &before) || fstatat(spaces->folder, space_kinds[i].name, &now, 0))
			return jail_fail(err, "stat", errno, "cannot tell which %s namespace the container is in",
					 space_kinds[i].name);
		if (before.st_dev == now.st_dev && before.st_ino == now.st_ino)
			return jail_fail(err, NULL, 0, "--container-unshare=%s: the container is in the %s namespace of the step",
					 space_kinds[i].name, space_kinds[i].name);
	}
	return 0;
}

void pyxis_spaces_done(struct pyxis_spaces *spaces)
{
	jail_close(&spaces->folder);
	for (unsigned i = 0; i < PYXIS_SPACES; i++)
		jail_close(&spaces->before[i]);
}
