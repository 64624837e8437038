/* SPDX-License-Identifier: Apache-2.0 */
/* Configures apt in the container not to change its user, which fails in a user namespace with one uid.
 * container/hooks.c calls it. */
#define _GNU_SOURCE
#include "hook.h"

/* apt gives its downloads to a user _apt, whom a namespace with one uid has not. */
int hook_apt(struct container *container, struct jail_error *err)
{
	if (!hook_there(container, "/etc/apt/apt.conf.d"))
		return 0;
	return hook_write(container, "/etc/apt/apt.conf.d", "99enroot-sandbox", "APT::Sandbox::User \"root\";\n", 0644,
			  err);
}
