/* SPDX-License-Identifier: Apache-2.0 */
/* Tests joining a container: it fails when the container's process has moved meanwhile to namespaces
 * of its user's making. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "native/container/join.h"
#include "native/container/namespaces.h"

/* A process with mounts of its own, which makes a user namespace and others when it is told to. */
static _Noreturn void member(int channel)
{
	char byte;
	bool done = !unshare(CLONE_NEWNS);

	(void)!write(channel, done ? "1" : "0", 1);
	while (read(channel, &byte, 1) == 1) {
		done = !unshare(CLONE_NEWUSER | CLONE_NEWNS);
		(void)!write(channel, done ? "1" : "0", 1);
	}
	_exit(0);
}

static bool answers(int channel)
{
	char byte;

	return read(channel, &byte, 1) == 1 && byte == '1';
}

/* In a process of its own: it becomes a member. `late`: the other moves on after the kinds were looked up. */
static int joins(pid_t pid, int channel, bool late)
{
	struct jail_error err;
	int status;
	scoped_fd process = (int)syscall(SYS_pidfd_open, pid, 0);
	int kinds = join_differing(pid, &err);

	CHECK(process >= 0 && kinds == CLONE_NEWNS);
	if (late)
		CHECK(write(channel, "x", 1) == 1 && answers(channel));
	pid_t child = fork();
	if (!child) {
		bool joined = !join_enter(process, kinds, pid, &err);
		_exit(joined ? 0 : strstr(err.message, "gone to another user namespace") ? 1 : 2);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void check_member(bool late)
{
	int ends[2];

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	pid_t pid = fork();
	if (!pid) {
		close(ends[0]);
		member(ends[1]);
	}
	close(ends[1]);
	CHECK(answers(ends[0]));
	CHECK(joins(pid, ends[0], late) == (late ? 1 : 0));
	close(ends[0]);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

int main(void)
{
	/* Who is not root becomes root of a user namespace, where that is allowed. */
	struct jail_error refused;

	if (!geteuid() || !namespaces_make_user(0, 0, &refused)) {
		check_member(false);
		check_member(true);
	}
	return check_result("join");
}
