#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../spank_jail/core/scoped.h"
#include "../../spank_jail/core/sys.h"
#include "../container/container.h"
#include "../container/fake_chown.h"
#include "../container/launch.h"
#include "../text/report.h"
#include "command.h"
#include "start_options.h"

#define MAX_ENVIRONMENT (4 * 1024 * 1024)

static const struct { const char *name; int flag; } namespaces[] = {
	{ "user", CLONE_NEWUSER },     { "mnt", CLONE_NEWNS },   { "pid", CLONE_NEWPID }, { "net", CLONE_NEWNET },
	{ "ipc", CLONE_NEWIPC },       { "uts", CLONE_NEWUTS },  { "cgroup", CLONE_NEWCGROUP },
};

/* The kinds of namespaces that the process has of its own. */
static int differing(long pid)
{
	int flags = 0;

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
		scoped_free char *own = text_format("/proc/self/ns/%s", namespaces[i].name);
		scoped_free char *theirs = text_format("/proc/%ld/ns/%s", pid, namespaces[i].name);
		struct stat a, b;
		if (!stat(own, &a) && !stat(theirs, &b) && a.st_ino != b.st_ino)
			flags |= namespaces[i].flag;
	}
	return flags;
}

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

/* Becomes a member of the container's namespaces. */
static int join(long pid, int flags, struct jail_error *err)
{
	scoped_fd process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

	if (process < 0)
		return jail_fail(err, "pidfd_open", errno, "there is no process %ld", pid);
	if (sys_setns(process, flags))
		return jail_fail(err, "setns", errno, "cannot join the namespaces of process %ld; is it a container of yours?", pid);
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
	int flags = differing(pid);

	if (kill((pid_t)pid, 0))
		return jail_fail(err, "kill", errno, errno == ESRCH ? "there is no process %ld" : "process %ld is another user's",
				 pid);
	if (!(flags & CLONE_NEWNS))
		return jail_fail(err, NULL, 0, "process %ld is in no container", pid);
	if (read_environment(pid, &environment, err) || join(pid, flags, err))
		return -1;
	if ((flags & CLONE_NEWPID) && fork_inside(err))
		return -1;
	for (size_t i = 0; i < variables->n; i++)
		variables_set_pair(&environment, variables->items[i]);
	const struct container container = { .uid = geteuid(), .privileged = !(flags & CLONE_NEWUSER) };
	if (!container.privileged && fake_chown(err))
		return -1;
	return container_drop(&container, err) ? -1 : launch(arguments, environment.list.items, err);
}

int command_exec(int argc, char **argv)
{
	static const struct option options[] = { { "env", required_argument, NULL, 'e' }, { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct text_list variables = { 0 };
	struct jail_error err;
	char *end;
	int option;

	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "+:e:h", options, NULL)) != -1) {
		if (option == 'h')
			return command_describe("exec");
		if (option == ':')
			return command_usage("exec", "the option %s needs a value", argv[optind - 1]);
		if (option != 'e')
			return command_usage("exec", "unknown option %s", argv[optind - 1]);
		if (start_add_variable(&variables, "exec", optarg))
			return 1;
	}
	if (optind + 1 >= argc)
		return command_usage("exec", "it takes a process id and a command");
	long pid = strtol(argv[optind], &end, 10);
	if (*end || pid <= 0)
		return command_usage("exec", "\"%s\" is no process id", argv[optind]);
	enter(pid, &variables, argv + optind + 1, &err);
	int status = err.number == ENOENT && err.target[0] ? 127 : err.number == EACCES && err.target[0] ? 126 : 1;
	report_failure(&err);
	return status;
}
