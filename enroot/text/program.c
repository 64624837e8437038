#define _GNU_SOURCE
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../spank_jail/core/scoped.h"

char *program_find(const char *name)
{
	const char *own = getenv("PATH");
	scoped_free char *paths = text_format("%s:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", own ? own : "");
	char *rest = paths, *folder;

	while ((folder = strsep(&rest, ":"))) {
		if (*folder != '/')
			continue;
		char *path = text_format("%s/%s", folder, name);
		if (!access(path, X_OK))
			return path;
		free(path);
	}
	return NULL;
}

static void child(const struct program *program, const char *path, int out, pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(126);
	if (program->quiet)
		out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (out >= 0)
		dup2(out, STDOUT_FILENO);
	if (program->input > 0)
		dup2(program->input, STDIN_FILENO);
	if (program->prepare && !program->prepare())
		_exit(126);
	if (program->environment)
		execve(path, program->arguments, program->environment);
	else
		execv(path, program->arguments);
	_exit(127);
}

int program_run(const struct program *program, struct jail_error *err)
{
	const char *name = program->arguments[0];
	scoped_free char *path = strchr(name, '/') ? text_copy(name, strlen(name)) : program_find(name);
	int ends[2] = { -1, -1 }, status;
	char part[4096];
	ssize_t got;

	if (!path)
		return jail_fail(err, NULL, ENOENT, "the program %s is not installed", name);
	if (program->output && pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot run %s", name);
	pid_t self = getpid(), pid = fork();
	if (!pid)
		child(program, path, ends[1], self);
	int number = errno;
	jail_close(&ends[1]);
	while (pid > 0 && ends[0] >= 0 && (got = read(ends[0], part, sizeof(part))) > 0)
		text_append(program->output, part, (size_t)got);
	jail_close(&ends[0]);
	if (pid < 0)
		return jail_fail(err, "fork", number, "cannot run %s", name);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return jail_fail(err, "waitpid", errno, "lost %s", name);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
