/* SPDX-License-Identifier: Apache-2.0 */
/* Does the last steps of a container's start: enters its root, gives up the rights that were needed, and executes its
 * command. start.c and enroot/command call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "native/mount/namespace.h"
#include "native/mount/resolve.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/jail/tree.h"
#include "native/base/accounts.h"
#include "enroot/hooks/hook.h"
#include "container.h"
#include "environment_file.h"
#include "native/container/fake_chown.h"
#include "launch.h"
#include "native/container/namespaces.h"
#include "native/container/refusal.h"

#define SEARCH_PATH "/usr/local/bin:/usr/bin:/bin"
#define SEARCH_PATH_ROOT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The value of `key` in login.defs(5), as far as it is a path: "ENV_PATH PATH=/usr/bin:/bin". */
static char *login_path(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *value = line + length;
		if (strncmp(line, key, length) || !strchr(" \t", *value))
			continue;
		value += strspn(value, " \t");
		value += text_starts(value, "PATH=") ? strlen("PATH=") : 0;
		return text_copy(value, strcspn(value, " \t\n"));
	}
	return NULL;
}

/* What login(1) would set, and over it the container's environment. */
static void set_login(struct container *container, const struct jail_account *account)
{
	bool root = CONTAINER_INSIDE(container, uid) == 0;
	scoped_free char *defs = hook_read(container, "/etc/login.defs");
	scoped_free char *locale = hook_read(container, "/etc/locale.conf");
	scoped_free char *path = login_path(defs, root ? "ENV_SUPATH" : "ENV_PATH");
	scoped_variables all = { 0 };

	variables_set(&all, "HOME", account->home);
	variables_set(&all, "SHELL", account->shell);
	variables_set(&all, "USER", account->name);
	variables_set(&all, "LOGNAME", account->name);
	variables_set(&all, "PATH", path ? path : root ? SEARCH_PATH_ROOT : SEARCH_PATH);
	variables_set(&all, "TERM", "dumb");
	environment_read_image(&all, locale, "/etc/locale.conf of the container", ENVIRONMENT_QUOTED);
	for (size_t i = 0; i < container->environment.list.n; i++)
		variables_set_pair(&all, container->environment.list.items[i]);
	variables_free(&container->environment);
	variables_free(&container->image_environment);
	variables_free(&container->own_environment);
	container->environment = all;
	all = (struct variables){ 0 };
}

int container_enter(struct container *container, struct jail_error *err)
{
	scoped_free struct jail_account *account = calloc(1, sizeof(*account));
	scoped_free char *id = text_format("%u", CONTAINER_INSIDE(container, uid));
	struct jail_error unknown;

	if (!account)
		return jail_fail(err, "calloc", ENOMEM, "no memory");
	if (jail_account_find(container->root, id, account, &unknown)) {
		snprintf(account->name, sizeof(account->name), "%s", container->user);
		snprintf(account->home, sizeof(account->home), "%s", container->home);
	}
	if (!account->shell[0] || !hook_there(container, account->shell))
		snprintf(account->shell, sizeof(account->shell), "/bin/sh");
	set_login(container, account);
	/* /etc/rc would make it, where it could. */
	if (container->image)
		hold_make_directory(container->root);
	/* A mount with a file open for writing cannot become read-only. */
	jail_close(&container->lock);
	if (!settings_true(container->settings, "ENROOT_ROOTFS_WRITABLE") && jail_tree_readonly(container->root, err))
		return -1;
	if (jail_namespace_pivot(container->top, err))
		return -1;
	jail_close(&container->root);
	/* The project's jail refuses it to all within, and kernels without cgroups do not know it. */
	if (sys_unshare(CLONE_NEWCGROUP) && errno != EPERM && errno != EINVAL)
		return refusal_explain("unshare", errno, "/proc", err);
	if (container->privileged)
		return 0;
	return fake_chown(err) ? -1 : namespaces_drop_rights(CONTAINER_INSIDE(container, uid), err);
}

int launch(char *const *arguments, char *const *environment, struct jail_error *err)
{
	static const char *const paths = SEARCH_PATH_ROOT;
	const char *path = NULL;

	for (char *const *pair = environment; *pair; pair++)
		if (text_starts(*pair, "PATH="))
			path = *pair + strlen("PATH=");
	/* For execvpe, which looks into this process's own. */
	if (setenv("PATH", path ? path : paths, 1))
		return jail_fail(err, "setenv", errno, "no memory");
	execvpe(arguments[0], arguments, environment);
	jail_fail(err, "execve", errno, "cannot run it in the container");
	return jail_error_at(err, NULL, 0, arguments[0]);
}

/* A login shell is told by the "-" before its name. */
static char *shell_name(const char *shell, bool login)
{
	const char *slash = strrchr(shell, '/');

	return login ? text_format("-%s", slash ? slash + 1 : shell) : text_copy(shell, strlen(shell));
}

int container_run(struct container *container, struct jail_error *err)
{
	bool login = settings_true(container->settings, "ENROOT_LOGIN_SHELL");
	const char *shell = login ? variables_get(&container->environment, "SHELL") : "/bin/sh";
	scoped_list arguments = { 0 };
	struct stat rc;

	if (settings_true(container->settings, "ENROOT_UNSHARE_PID") && prctl(PR_SET_PDEATHSIG, SIGKILL))
		return jail_fail(err, "prctl", errno, "cannot follow the parent's end");
	bool scripted = !stat("/etc/rc", &rc) && S_ISREG(rc.st_mode) && rc.st_size;
	if (container->hold.program && (!scripted || !container->hold.with_rc))
		return hold_run(&container->hold, container->environment.list.items, err);
	if (container->hold.program)
		container->command = hold_command(&container->hold);
	if (!scripted && container->command[0])
		return launch(container->command, container->environment.list.items, err);
	text_list_take(&arguments, shell_name(shell, login));
	if (scripted)
		text_list_add(&arguments, "/etc/rc");
	for (char *const *argument = container->command; *argument; argument++)
		text_list_add(&arguments, *argument);
	execve(shell, arguments.items, container->environment.list.items);
	jail_fail(err, "execve", errno, "cannot run the shell in the container");
	return jail_error_at(err, NULL, 0, shell);
}
