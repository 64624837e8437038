/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a container: notes who the calling user is, and then calls the other files of this folder one after the
 * other, from root.c to launch.c. enroot/command calls it. */
#define _GNU_SOURCE
#include "start.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/base/report.h"

static void find_account(struct container *container)
{
	container->uid = geteuid();
	container->gid = getegid();
	/* Before the user namespace, where one may be another. */
	const struct passwd *account = getpwuid(container->uid);
	const char *home = getenv("HOME");
	container->user = account ? text_format("%s", account->pw_name) : text_format("%u", (unsigned)container->uid);
	container->home = text_format("%s", home && *home == '/' ? home : account ? account->pw_dir : "/");
	container->shell = account && *account->pw_shell ? text_format("%s", account->pw_shell) : NULL;
}

int container_start(struct container *container)
{
	struct settings *settings = container->settings;
	struct jail_error err;

	find_account(container);
	container->remapped = settings_true(settings, "ENROOT_REMAP_ROOT");
	container->privileged = !container->uid && settings_true(settings, "ENROOT_ALLOW_SUPERUSER");
	container->root = container->lock = -1;
	/* Or /etc/passwd and the root itself would be the caller's alone, whoever the container's programs become. */
	container->mask = umask(022);
	if (hold_prepare(&container->hold, settings, &err))
		return report_failure(&err);
	if (container_root(container, &err) || container_environment(container, &err) ||
	    container_mounts(container, true, &err) || container_hooks(container, &err) ||
	    container_mounts(container, false, &err) || container_rc(container, &err) ||
	    container_enter(container, &err))
		return report_failure(&err);
	umask(container->mask);
	container_run(container, &err);
	int status = err.number == ENOENT ? 127 : err.number == EACCES || err.number == ENOEXEC ? 126 : 1;
	report_failure(&err);
	return status;
}
