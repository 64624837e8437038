/* SPDX-License-Identifier: Apache-2.0 */
/* Removes at a job's end what it left on the node: containers that live as long as their job, and files of steps that
 * were killed. plugin.c calls it. */
#define _GNU_SOURCE
#include "epilog.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "native/base/trust.h"
#include "pyxis/step/descriptors.h"
#include "pyxis/step/root_label.h"
#include "log.h"

/* The node takes no other job until the epilog is over, and the user decides how long removing takes: by what he left,
 * and by what he adds to it from another node. The rest lies under a hidden name, for his next command to remove. */
#define PATIENCE_MS 30000
/* How often it is looked whether somebody has stopped it. */
#define LOOK_MS 100
/* For the kernel to end what was killed; what waits for a file system meanwhile is not waited for. */
#define KILL_PATIENCE_MS 2000
/* Of what the user's program says; the node's log is not his to fill. */
#define MAX_SAID 2000

static char *note_path(const struct pyxis_arguments *arguments, uint32_t job)
{
	return text_format("%s/%u", arguments->runtime_path, job);
}

/* The directory of notes, which say whose containers root's epilog removes: nobody else may write there. */
static int open_notes(const struct pyxis_arguments *arguments, struct jail_error *err)
{
	struct stat st;

	if (mkdir(arguments->runtime_path, 0700) && errno != EEXIST)
		return jail_fail(err, "mkdir", errno, "cannot make runtime_path=%s", arguments->runtime_path);
	scoped_fd fd = open(arguments->runtime_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return jail_fail(err, "open", errno, "runtime_path=%s must be a directory, not a link", arguments->runtime_path);
	if (st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH))
		return jail_fail(err, NULL, 0, "runtime_path=%s is uid %u's, mode %04o: others could write there; chown root and "
				 "chmod go-w, or give another", arguments->runtime_path, (unsigned)st.st_uid, st.st_mode & 07777);
	/* Nor above it: a runtime_path below /tmp may be somebody's link. That follows links and looks once more by name; what is
	 * written to is the directory that was opened here. */
	if (!geteuid()) {
		scoped_fd trusted = jail_open_trusted(arguments->runtime_path, 1, "directory of runtime_path=", err);
		if (trusted < 0)
			return -1;
	}
	return jail_keep(&fd);
}

/* Locked as long as the step is here, so that whoever sweeps need not ask slurmctld. */
static int write_note(const struct pyxis_arguments *arguments, const struct pyxis_owner *owner, struct jail_error *err)
{
	scoped_fd notes = open_notes(arguments, err);
	scoped_free char *name = text_format("%u", owner->job), *text = text_format("%u\n", owner->uid);

	if (notes < 0)
		return -1;
	scoped_fd fd = openat(notes, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) || text_write(fd, text, strlen(text)))
		return jail_fail(err, fd < 0 ? "open" : "write", errno, "cannot write a note in runtime_path=%s", arguments->runtime_path);
	return jail_keep(&fd);
}

int pyxis_epilog_note(const struct pyxis_arguments *arguments, const struct pyxis_owner *owner)
{
	uid_t user = geteuid();
	struct jail_error err;
	char line[1400];

	if (user && sys_thread_seteuid(0))
		return -1;
	int fd = write_note(arguments, owner, &err);
	/* No reason not to run: where something is left, later steps of the user find it. */
	if (fd < 0)
		slurm_info(PYXIS_NAME_IN_LOG "the epilog will not look for what this step may leave: %s",
			   jail_error_format(&err, line, sizeof(line)));
	if (user && sys_thread_seteuid(user))
		_exit(1);
	return fd;
}

/* Where there is no jail, the node knows the user. Of slurmd's environment he gets the way to programs. */
static int become_user(uint32_t uid)
{
	const struct passwd *account = getpwuid(uid);
	const char *own = getenv("PATH");
	scoped_free char *path = own ? text_copy(own, strlen(own)) : NULL;

	if (clearenv() || (path && setenv("PATH", path, 1)) || !account || initgroups(account->pw_name, account->pw_gid) ||
	    setresgid(account->pw_gid, account->pw_gid, account->pw_gid) || setresuid(uid, uid, uid))
		return -1;
	return setenv("HOME", account->pw_dir, 1) || setenv("USER", account->pw_name, 1) || chdir("/");
}

static _Noreturn void remove_as_user(const struct pyxis_arguments *arguments, uint32_t job, uint32_t uid)
{
	scoped_free char *pattern = pyxis_container_pattern(job, arguments->job_scope);
	scoped_free char *label = pyxis_root_label_pattern(job, arguments->job_scope);
	scoped_free char *user = text_format("%u", uid);
	char *words[] = { (char *)(uintptr_t)arguments->jail_enter, (char *)(uintptr_t)"--user", user, (char *)(uintptr_t)"--",
			  (char *)(uintptr_t)"enroot", (char *)(uintptr_t)"remove", (char *)(uintptr_t)"--force",
			  (char *)(uintptr_t)"--match", pattern, (char *)(uintptr_t)"--mark", label, NULL };

	if (arguments->jail_enter)
		execv(words[0], words);
	else if (!become_user(uid))
		execvp(words[4], words + 4);
	_exit(127);
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Until it has ended: NULL, and its status. Else it is killed, and with it all of its PID namespace: why. */
static const char *wait_for(pid_t pid, int *status)
{
	const long long until = now_ms() + PATIENCE_MS;
	scoped_fd process = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = { .fd = process, .events = POLLIN };
	const char *why = process < 0 ? "there is no descriptor of it" : NULL;

	for (int found = 0; !why && found <= 0;) {
		siginfo_t stopped = { .si_pid = 0 };
		found = poll(&ended, 1, LOOK_MS);
		/* Another job of the user can: it is his process. */
		if (found <= 0 && !waitid(P_PID, (id_t)pid, &stopped, WNOHANG | WSTOPPED) && stopped.si_pid)
			why = "somebody stopped it; it was ended";
		else if (found <= 0 && now_ms() > until)
			why = "it took too long, and was ended";
	}
	if (why && (kill(pid, SIGKILL) || (process >= 0 && poll(&ended, 1, KILL_PATIENCE_MS) <= 0)))
		return why;
	while (waitpid(pid, status, 0) < 0)
		if (errno != EINTR)
			return "lost it";
	return why;
}

/* What runs for the user is in a PID namespace of its own, whatever the level of the jail. It sees no daemon and cannot
 * signal one, where root of the jail has put another program in the place of enroot; and nothing of it is left when its
 * first process ends, in slurmd's cgroup, where no job is counted. */
static _Noreturn void child(const struct pyxis_arguments *arguments, uint32_t job, uint32_t uid, int said)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), status = 0;

	dup2(null, STDIN_FILENO);
	dup2(said, STDOUT_FILENO);
	dup2(said, STDERR_FILENO);
	descriptors_close_but(NULL, 0);
	if (geteuid()) /* slurmd is not root: there is nobody to become, and no jail */
		remove_as_user(arguments, job, uid);
	/* A slurmd without that right can have no jail. */
	pid_t pid = unshare(CLONE_NEWPID) && (errno != EPERM || arguments->jail_enter) ? -1 : fork();
	if (!pid)
		remove_as_user(arguments, job, uid);
	const char *why = pid < 0 ? strerrordesc_np(errno) : wait_for(pid, &status);
	if (why)
		dprintf(STDERR_FILENO, "enroot remove: %s\n", why);
	_exit(!why && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Takes what is said until all who can say something have ended, or at most as long as the child may need. */
static void listen_to(int from, char said[MAX_SAID + 1])
{
	const long long until = now_ms() + PATIENCE_MS + 2 * KILL_PATIENCE_MS;
	char part[1024];
	size_t length = 0;

	for (long long left; (left = until - now_ms()) > 0;) {
		struct pollfd ready = { .fd = from, .events = POLLIN };
		int found = poll(&ready, 1, (int)left);
		ssize_t got = found > 0 ? read(from, part, sizeof(part)) : 0;
		if (found > 0 && got <= 0 && (!got || errno != EINTR))
			break;
		if (got <= 0)
			continue;
		size_t capacity = MAX_SAID - length, more = (size_t)got < capacity ? (size_t)got : capacity;
		memcpy(said + length, part, more);
		length += more;
	}
	said[length] = '\0';
}

static void report(char *said, uint32_t job)
{
	struct jail_error err;

	for (char *rest = said, *line; (line = strsep(&rest, "\n"));)
		if (*line) {
			jail_fail(&err, NULL, 0, "removing what job %u left: %s", job, line);
			pyxis_log_error(&err);
		}
}

static int remove_containers(const struct pyxis_arguments *arguments, uint32_t job, uint32_t uid, struct jail_error *err)
{
	char said[MAX_SAID + 1];
	int status = -1, ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return jail_fail(err, "pipe2", errno, "cannot remove the containers of job %u", job);
	scoped_fd from = ends[0], to = ends[1];
	pid_t pid = fork();

	if (!pid)
		child(arguments, job, uid, to);
	int number = errno;
	jail_close(&to);
	if (pid < 0)
		return jail_fail(err, "fork", number, "cannot remove the containers of job %u", job);
	listen_to(from, said);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return jail_fail(err, "waitpid", errno, "cannot remove the containers of job %u", job);
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	report(said, job);
	return jail_fail(err, NULL, 0, "containers of job %u (uid %u) could not be removed; `enroot list` of the user shows those "
			 "with a name, and each enroot command of his tries the others again", job, uid);
}

int pyxis_epilog_run(const struct pyxis_arguments *arguments, uint32_t job, uint32_t uid, struct jail_error *err)
{
	scoped_free char *path = note_path(arguments, job);

	if (access(path, F_OK))
		return 0;
	int result = remove_containers(arguments, job, uid, err);
	(void)unlink(path);
	return result;
}

/* A note that nobody holds, of a job that is over: its lock is taken, for two jobs may begin at once. */
static void sweep_note(const struct pyxis_arguments *arguments, int notes, const char *name, bool (*is_over)(uint32_t job))
{
	scoped_fd fd = openat(notes, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	uint32_t job = (uint32_t)strtoul(name, NULL, 10);
	struct jail_error err;
	char text[16] = "";

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || !is_over(job))
		return;
	if (read(fd, text, sizeof(text) - 1) > 0 && isdigit((unsigned char)text[0]) &&
	    remove_containers(arguments, job, (uint32_t)strtoul(text, NULL, 10), &err))
		pyxis_log_error(&err);
	(void)unlinkat(notes, name, 0);
}

void pyxis_epilog_sweep(const struct pyxis_arguments *arguments, uint32_t own, bool (*is_over)(uint32_t job))
{
	struct jail_error ignored;
	int notes = access(arguments->runtime_path, F_OK) ? -1 : open_notes(arguments, &ignored);
	DIR *stream = notes < 0 ? NULL : fdopendir(notes);

	for (struct dirent *entry; stream && (entry = readdir(stream));)
		if (isdigit((unsigned char)entry->d_name[0]) && strtoul(entry->d_name, NULL, 10) != own)
			sweep_note(arguments, notes, entry->d_name, is_over);
	if (stream)
		closedir(stream);
}
