/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why the kernel refuses to make a namespace: which sysctl or security module, and what to do. namespaces.c,
 * enroot/command and enroot/container call it. */
#define _GNU_SOURCE
#include "refusal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "native/base/scoped.h"
#include "native/base/text.h"

/* The number in proc/sys/NAME, or -1 where there is no such setting. */
static long setting(const char *proc, const char *name)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("%s/sys/%s", proc, name);
	scoped_free char *text = text_read(AT_FDCWD, path, 64, NULL, &ignored);

	return text ? atol(text) : -1;
}

/* Of the limits on namespaces the lowest one: what "no space left" most likely means. Its name, and its number in `limit`. */
static const char *lowest_limit(const char *proc, long *limit)
{
	static const char *const names[] = { "max_user_namespaces", "max_mnt_namespaces", "max_pid_namespaces",
					     "max_net_namespaces", "max_ipc_namespaces", "max_uts_namespaces",
					     "max_cgroup_namespaces" };
	const char *lowest = names[0];

	*limit = -1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		scoped_free char *name = text_format("user/%s", names[i]);
		long number = setting(proc, name);
		if (number < 0 || (*limit >= 0 && number >= *limit))
			continue;
		*limit = number;
		lowest = names[i];
	}
	return lowest;
}

/* Whether a system call filter is on this process, that of a container or of a service. */
static bool is_filtered(const char *proc)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("%s/self/status", proc);
	scoped_free char *text = text_read(AT_FDCWD, path, 65536, NULL, &ignored);
	const char *line = text ? strstr(text, "\nSeccomp:\t") : NULL;

	return line && line[strlen("\nSeccomp:\t")] == '2';
}

static char *profile(const char *proc)
{
	struct jail_error ignored;
	scoped_free char *path = text_format("%s/self/attr/apparmor/current", proc);
	char *text = text_read(AT_FDCWD, path, 4096, NULL, &ignored);

	if (text)
		text[strcspn(text, "\n")] = '\0';
	return text;
}

int refusal_explain(const char *call, int number, const char *proc, struct jail_error *err)
{
	scoped_free char *confined = profile(proc);

	if (!setting(proc, "user/max_user_namespaces"))
		return jail_fail(err, call, number, "user namespaces are switched off by user.max_user_namespaces = 0; the "
				 "administrator allows them with: sysctl -w user.max_user_namespaces=15000 (and a line in "
				 "/etc/sysctl.d to keep it)");
	if (!setting(proc, "user/max_mnt_namespaces"))
		return jail_fail(err, call, number, "mount namespaces are switched off by user.max_mnt_namespaces = 0; the "
				 "administrator allows them with: sysctl -w user.max_mnt_namespaces=15000");
	if (!setting(proc, "kernel/unprivileged_userns_clone"))
		return jail_fail(err, call, number, "user namespaces are kept from users by "
				 "kernel.unprivileged_userns_clone = 0; the administrator allows them with: "
				 "sysctl -w kernel.unprivileged_userns_clone=1");
	if (number == ENOSPC || number == EUSERS) {
		long limit;
		const char *name = lowest_limit(proc, &limit);
		/* Within a user namespace of one's own these are its own, and the kernel's default is none. */
		if (limit == INT_MAX)
			return jail_fail(err, call, number, "a limit on namespaces is reached; `sysctl user` shows them to whoever is in "
					 "no container: user.max_{user,mnt,pid,net,ipc,uts,cgroup}_namespaces. Raise the one that is too "
					 "low, or end containers");
		return jail_fail(err, call, number, "all namespaces that user.%s (%ld) allows are in use, or they are nested 32 "
				 "deep; end containers, or raise it", name, limit);
	}
	if (setting(proc, "kernel/apparmor_restrict_unprivileged_userns") > 0)
		return jail_fail(err, call, number, "AppArmor keeps user namespaces from programs without a profile "
				 "(kernel.apparmor_restrict_unprivileged_userns = 1); the administrator installs a profile "
				 "for enroot with \"userns,\" in it, or sets it to 0");
	if (confined && strcmp(confined, "unconfined"))
		return jail_fail(err, call, number, "the AppArmor profile \"%s\" of this process refuses it; run it unconfined, "
				 "or allow userns and mount there", confined);
	if (is_filtered(proc))
		return jail_fail(err, call, number, "a system call filter (seccomp) refuses it: that of the container or service "
				 "that this runs in; start that with a filter that allows unshare, clone and mount "
				 "(docker and podman: --security-opt seccomp=unconfined)");
	if (number == EPERM)
		return jail_fail(err, call, number, "the kernel refuses a user namespace, and none of its settings says why; "
				 "a process in a chroot may not make one");
	return jail_fail(err, call, number, "cannot make the container's namespaces");
}
