/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program enroot as the task's user, in the task's namespaces. container.c and container_run.c call it. */
#define _GNU_SOURCE
#include "runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/program.h"
#include "native/base/scoped.h"
#include "descriptors.h"

#ifndef PYXIS_VERSION
#define PYXIS_VERSION "0.24.0"
#endif

/* Of what an importer prints the first line counts. */
#define MAX_OUTPUT (64UL * 1024)

/* PATH: slurmstepd's is kept. The next of them are of one task. The last are the administrator's to decide, in
 * enroot.conf; ENROOT_CONFIG_PATH and ENROOT_SQUASH_OPTIONS are the user's. */
static const char *const kept_back[] = {
	"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD",
	"SLURM_PROCID", "SLURM_LOCALID", "SLURM_TASK_PID", "PMIX_RANK", "PMI_FD",
	"ENROOT_LIBRARY_PATH", "ENROOT_SYSCONF_PATH", "ENROOT_RUNTIME_PATH", "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH",
	"ENROOT_TEMP_PATH", "ENROOT_ZSTD_OPTIONS", "ENROOT_TRANSFER_RETRIES", "ENROOT_CONNECT_TIMEOUT",
	"ENROOT_MAX_CONNECTIONS", "ENROOT_ALLOW_HTTP",
};

static bool is_kept_back(const char *pair)
{
	size_t length = strcspn(pair, "=");

	for (size_t i = 0; i < sizeof(kept_back) / sizeof(kept_back[0]); i++)
		if (strlen(kept_back[i]) == length && !strncmp(kept_back[i], pair, length))
			return true;
	return false;
}

static void set_number(struct variables *environment, const char *key, unsigned number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	variables_set(environment, key, text);
}

static void set_switch(struct variables *environment, const char *key, enum pyxis_switch on)
{
	if (on != PYXIS_UNSET)
		variables_set(environment, key, on == PYXIS_YES ? "y" : "n");
}

void pyxis_runtime_environment(struct variables *environment, char *const *job, const struct pyxis_owner *owner,
			       const struct pyxis_request *request, const struct pyxis_arguments *arguments)
{
	const char *path = getenv("PATH");

	/* At once, not each looked for among the others: a job has hundreds. */
	for (char *const *pair = job; pair && *pair; pair++)
		if (strchr(*pair, '=') && !is_kept_back(*pair))
			text_list_add(&environment->list, *pair);
	variables_set(environment, "PATH", path && *path ? path : "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	variables_set(environment, "PYXIS_RUNTIME_PATH", arguments->runtime_path);
	variables_set(environment, "PYXIS_VERSION", PYXIS_VERSION);
	set_number(environment, "SLURM_JOB_UID", owner->uid);
	set_number(environment, "SLURM_JOB_GID", owner->gid);
	/* Tasks join: a PID namespace would hold what they fork, and not themselves. */
	variables_set(environment, "ENROOT_UNSHARE_PID", "n");
	set_switch(environment, "ENROOT_MOUNT_HOME", request->mount_home);
	set_switch(environment, "ENROOT_REMAP_ROOT", request->remap_root);
	set_switch(environment, "ENROOT_ROOTFS_WRITABLE", request->writable);
	if (arguments->image_mount == PYXIS_MOUNT_KERNEL)
		variables_set(environment, "ENROOT_KERNEL_IMAGES", "y");
	if (request->unshare & PYXIS_NET)
		variables_set(environment, "ENROOT_UNSHARE_NET", "y");
	if (request->unshare & PYXIS_IPC)
		variables_set(environment, "ENROOT_UNSHARE_IPC", "y");
	if (request->unshare & PYXIS_UTS)
		variables_set(environment, "ENROOT_UNSHARE_UTS", "y");
}

/* In a child: the streams, the two of `inherited` where they are no 0, and nothing else of slurmstepd's. */
static void become(char *const *arguments, const struct variables *environment, int log, int output, const int inherited[2])
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);
	umask(022);
	dup2(null, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	/* Without spank_jail some of Slurm's stay open over an execution. */
	descriptors_seal_but(inherited, 2);
	for (int i = 0; i < 2; i++)
		if (inherited[i] > STDERR_FILENO)
			fcntl(inherited[i], F_SETFD, 0);
	environ = environment->list.items;
	const char *program = arguments[0];
	scoped_free char *path = strchr(program, '/') ? text_copy(program, strlen(program)) : program_find(program);
	if (path)
		execv(path, arguments);
	dprintf(STDERR_FILENO, "[ERROR] %s: %s; it belongs to the worker's image, or to the jail's where there is one\n",
		path ? path : program, strerrordesc_np(path ? errno : ENOENT));
	_exit(127);
}

static int wait_for(pid_t pid, struct jail_error *err)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return jail_fail(err, "waitpid", errno, "lost a child");
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Until `fd` has something to read, is closed at its other end, or is a process that has ended. */
static void wait_telling(int fd, const struct pyxis_meanwhile *meanwhile)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	int found;

	/* A call that waits follows: without a descriptor, and after an error, that one does it. */
	while (fd >= 0 && meanwhile && ((found = poll(&wait, 1, meanwhile->every_ms)) == 0 || (found < 0 && errno == EINTR)))
		if (!found)
			meanwhile->tell(meanwhile->context);
}

static ssize_t read_part(int fd, char *part, size_t size, const struct pyxis_meanwhile *meanwhile)
{
	wait_telling(fd, meanwhile);
	return read(fd, part, size);
}

int pyxis_runtime_run(char *const *arguments, const struct variables *environment, int log, int inherited,
		      struct text_buffer *output, const struct pyxis_meanwhile *meanwhile, struct jail_error *err)
{
	int ends[2] = { -1, -1 };
	char part[4096];
	ssize_t got;

	if (output && pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot run %s", arguments[0]);
	pid_t self = getpid(), pid = fork();
	if (!pid) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != self)
			_exit(126);
		become(arguments, environment, log, output ? ends[1] : log, (const int[]){ inherited, 0 });
	}
	int number = errno;
	jail_close(&ends[1]);
	while (pid > 0 && ends[0] >= 0 &&
	       ((got = read_part(ends[0], part, sizeof(part), meanwhile)) > 0 || (got < 0 && errno == EINTR)))
		if (got > 0 && output->length < MAX_OUTPUT)
			text_append(output, part, (size_t)got);
	jail_close(&ends[0]);
	if (pid < 0)
		return jail_fail(err, "fork", number, "cannot run %s", arguments[0]);
	scoped_fd process = meanwhile ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	wait_telling(process, meanwhile);
	return wait_for(pid, err);
}

/* Forks what will be nobody's child, so that no task waits for it, and tells its number. */
static pid_t fork_away(int numbers, struct jail_error *err)
{
	pid_t pid = fork();

	if (pid < 0)
		return jail_fail(err, "fork", errno, "cannot start the container");
	if (pid)
		return wait_for(pid, err) < 0 ? -1 : pid;
	setsid();
	pid = fork();
	if (!pid)
		return 0;
	_exit(write(numbers, &pid, sizeof(pid)) != sizeof(pid));
}

pid_t pyxis_runtime_start(char *const *arguments, const struct variables *environment, int log, int ready[2], int life,
			  struct jail_error *err)
{
	int numbers[2];
	pid_t holder = -1;
	char byte;
	ssize_t got;

	if (pipe2(numbers, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot start the container");
	pid_t helper = fork_away(numbers[1], err);
	if (!helper) {
		const int inherited[] = { ready[1], life };
		become(arguments, environment, log, log, inherited);
	}
	jail_close(&ready[1]);
	jail_close(&numbers[1]);
	if (helper > 0 && read(numbers[0], &holder, sizeof(holder)) != sizeof(holder))
		helper = jail_fail(err, "fork", EAGAIN, "cannot start the container");
	jail_close(&numbers[0]);
	if (helper < 0)
		return -1;
	do
		got = read(ready[0], &byte, 1);
	while (got < 0 && errno == EINTR);
	return got == 1 ? holder : 0;
}
