/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the node's /dev/log in a container that has a /dev of its own. container/hooks.c calls it. */
#define _GNU_SOURCE
#include "hook.h"

/* Came with the host's /dev; where that is a small one of its own, the log is still wanted. */
int hook_devices(struct container *container, struct jail_error *err)
{
	const struct settings *settings = container->settings;

	if (!settings_true(settings, "ENROOT_RESTRICT_DEV") && !settings_true(settings, "ENROOT_UNSHARE_IPC"))
		return 0;
	return hook_mount(container, "/dev/log /dev/log none x-create=file,bind,nosuid,noexec,nofail,silent\n", err);
}
