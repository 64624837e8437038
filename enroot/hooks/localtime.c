/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the container the node's time zone. container/hooks.c calls it. */
#define _GNU_SOURCE
#include "hook.h"

/* A file, whatever it is on either side: the container need not have the host's zones. */
int hook_localtime(struct container *container, struct jail_error *err)
{
	return hook_mount(container, "/etc/localtime /etc/localtime none "
			  "x-create=file,bind,ro,nosuid,nodev,noexec,nofail,silent\n", err);
}
