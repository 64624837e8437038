/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that root can make a namespace when uid 0 has used up its number of them (user.max_mnt_namespaces). */
#define _GNU_SOURCE
#include "native/base/unshare.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/sys.h"
#include "native/testing/check.h"

#define MOST "3"
/* More than root may have, of which each is held by a process. */
#define MANY 8
#define KINDS (CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID)

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

/* 0, or the number of what was not as expected. */
static int make_one(void)
{
	uint32_t before[3][2], after[3][2];

	if (sys_capget(before[0], before[1], before[2]))
		return 1;
	if (sys_unshare(KINDS))
		return 2;
	if (geteuid() || getuid() || sys_capget(after[0], after[1], after[2]))
		return 3;
	return memcmp(before, after, sizeof(before)) ? 4 : 0;
}

/* Each makes namespaces and stays until the end of the pipe. */
static int make_many(int (*make)(void))
{
	int ends[2], status = 0, made = 0;
	pid_t children[MANY];

	if (pipe(ends))
		return -1;
	for (int i = 0; i < MANY; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		close(ends[1]);
		int wrong = make();
		char byte;
		if (!wrong)
			(void)!read(ends[0], &byte, 1);
		_exit(wrong);
	}
	/* Whoever failed has ended by then. */
	usleep(300000);
	close(ends[1]);
	for (int i = 0; i < MANY; i++)
		if (waitpid(children[i], &status, 0) == children[i] && !status)
			made++;
	close(ends[0]);
	return made;
}

static int plainly(void)
{
	return unshare(KINDS) ? 2 : 0;
}

/* Its ids are those of a container's user namespace. */
static int few_namespaces(void)
{
	if (!write_text("/proc/sys/user/max_mnt_namespaces", MOST) || !write_text("/proc/sys/user/max_ipc_namespaces", MOST) ||
	    !write_text("/proc/sys/user/max_pid_namespaces", MOST))
		return 1;
	if (make_many(plainly) != 3)
		return 2;
	if (make_many(make_one) != MANY)
		return 3;
	/* The maker of a user namespace is its owner: there is no other uid for it. */
	if (!write_text("/proc/sys/user/max_user_namespaces", "0"))
		return 4;
	return sys_unshare(CLONE_NEWUSER | CLONE_NEWNS) != -1 || errno != ENOSPC || geteuid() ? 5 : 0;
}

static void test_what_root_may_not_have_any_more(void)
{
	int ready[2], go[2], status = -1;
	char path[64], byte = 0;

	if (geteuid()) {
		printf("unshare: only root maps ids\n");
		return;
	}
	CHECK(!pipe(ready) && !pipe(go));
	pid_t pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWUSER) || write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(100);
		_exit(few_namespaces());
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	CHECK(write_text(path, "0 0 65536"));
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	CHECK(write_text(path, "0 0 65536"));
	CHECK(write(go[1], &byte, 1) == 1 && waitpid(pid, &status, 0) == pid);
	if (status)
		fprintf(stderr, "few_namespaces: %d\n", WEXITSTATUS(status));
	CHECK(status == 0);
}

int main(void)
{
	test_what_root_may_not_have_any_more();
	return check_result("unshare");
}
