/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts the user's home directory if ENROOT_MOUNT_HOME asks for it. container/hooks.c calls it. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/container/fstab.h"
#include "hook.h"

/* The host's home directory where it is asked for; else a place that login shells can change to. */
int hook_home(struct container *container, struct jail_error *err)
{
	const char *inside = container->remapped ? "/root" : container->home;
	struct jail_error missing;

	if (!settings_true(container->settings, "ENROOT_MOUNT_HOME")) {
		int made = jail_resolve_create(container->root, inside, JAIL_CREATE_DIR, &missing);
		jail_close(&made);
		return 0;
	}
	scoped_free char *from = fstab_field(container->home);
	scoped_free char *to = fstab_field(inside);
	scoped_free char *line = text_format("%s %s none x-create=dir,rbind,rw,nosuid,nodev\n", from, to);
	return hook_mount(container, line, err);
}
