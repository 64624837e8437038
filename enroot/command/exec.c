/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `enroot exec`: runs a program in a container that runs already. main.c calls it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/container/join.h"
#include "enroot/container/launch.h"
#include "native/base/variables.h"
#include "native/base/report.h"
#include "command.h"
#include "options.h"
#include "start_options.h"

#define MAX_ENVIRONMENT (4 * 1024 * 1024)

static int read_environment(long pid, struct variables *environment, struct jail_error *err)
{
	size_t length;
	scoped_free char *path = text_format("/proc/%ld/environ", pid);
	scoped_free char *text = text_read(AT_FDCWD, path, MAX_ENVIRONMENT, &length, err);

	if (!text)
		return -1;
	for (const char *pair = text; pair < text + length; pair += strlen(pair) + 1)
		if (strchr(pair, '='))
			variables_set_pair(environment, pair);
	return 0;
}

/* Root becomes the container's user before it enters: the programs there are that user's, and uid 0 of the host may write
 * to /proc/sys without any capability. */
static int become_its_user(long pid, struct jail_error *err)
{
	unsigned uid, gid;
	scoped_free char *path = text_format("/proc/%ld/status", pid);
	scoped_free char *text = text_read(AT_FDCWD, path, 65536, NULL, err);
	const char *uids = text ? strstr(text, "\nUid:") : NULL, *gids = text ? strstr(text, "\nGid:") : NULL;

	if (!text)
		return -1;
	if (!uids || !gids || sscanf(uids, "\nUid: %*u %u", &uid) != 1 || sscanf(gids, "\nGid: %*u %u", &gid) != 1)
		return jail_fail(err, NULL, 0, "cannot tell whose process %ld is", pid);
	/* Programs there could read what root's session has of keys. Before the user's own quota counts. */
	if (uid && syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS && errno != EPERM)
		return jail_fail(err, "keyctl", errno, "cannot leave root's keys behind; is kernel.keys.root_maxkeys reached?");
	if (uid && (setgroups(0, NULL) || setresgid(gid, gid, gid) || setresuid(uid, uid, uid)))
		return jail_fail(err, "setresuid", errno, "cannot become the user of process %ld", pid);
	return 0;
}

/* A PID namespace holds what is forked from now on. Returns in the child. */
static int fork_inside(struct jail_error *err)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return jail_fail(err, "fork", errno, "cannot start a process in the container");
	if (!pid)
		return prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static int enter(long pid, const struct text_list *variables, char *const *arguments, struct jail_error *err)
{
	scoped_variables environment = { 0 };
	scoped_fd process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

	if (process < 0)
		return jail_fail(err, "pidfd_open", errno, "there is no process %ld", pid);
	/* From here on the number is this process's, or setns fails. */
	if (kill((pid_t)pid, 0))
		return jail_fail(err, "kill", errno, errno == ESRCH ? "there is no process %ld" : "process %ld is another user's",
				 pid);
	int flags = join_differing(pid, err);
	if (flags < 0)
		return -1;
	if (!(flags & CLONE_NEWNS))
		return jail_fail(err, NULL, 0, "process %ld is in no container", pid);
	if (read_environment(pid, &environment, err))
		return -1;
	if (!geteuid() && (flags & CLONE_NEWUSER) && become_its_user(pid, err))
		return -1;
	if (join_enter(process, flags, pid, err))
		return -1;
	if ((flags & CLONE_NEWPID) && fork_inside(err))
		return -1;
	for (size_t i = 0; i < variables->n; i++)
		variables_set_pair(&environment, variables->items[i]);
	return join_confine(flags, err) ? -1 : launch(arguments, environment.list.items, err);
}

int command_exec(int argc, char **argv)
{
	scoped_list given = { 0 }, variables = { 0 };
	const struct command_option options[] = { { .name = "env", .letter = 'e', .list = &given }, { .name = NULL } };
	struct jail_error err;
	char *end;
	int first, ended = command_options(argc, argv, options, OPTIONS_AHEAD, &first);

	if (ended >= 0)
		return ended;
	if (start_add_variables(&variables, "exec", &given))
		return 1;
	if (first + 1 >= argc)
		return command_usage("exec", "it takes a process id and a command");
	long pid = strtol(argv[first], &end, 10);
	if (*end || pid <= 0)
		return command_usage("exec", "\"%s\" is no process id", argv[first]);
	enter(pid, &variables, argv + first + 1, &err);
	int status = err.number == ENOENT && err.target[0] ? 127 : err.number == EACCES && err.target[0] ? 126 : 1;
	report_failure(&err);
	return status;
}
