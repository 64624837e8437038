/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a step is refused a running container that lacks what it asks for, and is told what is missing.
 *
 * The containers are processes of this test with namespaces of their own; only enroot is replaced.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/base/text.h"
#include "native/base/scoped.h"
#include "native/testing/check.h"
#include "pyxis/step/join_check.h"
#include "pyxis/step/task.h"

#define USER 4242

static char folder[] = "/tmp/pyxis-test-XXXXXX";

/* How a container is made: namespaces besides that of mounts, the number that its user has in it (-1: no user namespace). */
struct kind {
	int flags, inside;
	bool readonly;
};

static void write_map(const char *name, const char *text)
{
	scoped_fd fd = open(name, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || text_write(fd, text, strlen(text)))
		_exit(3);
}

/* Below the folder: home, data (shown at mnt, and read-only at fixed), and a tmpfs at scratch. */
static void make_mounts(bool readonly)
{
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount(folder, folder, NULL, MS_BIND, NULL) || chdir(folder) ||
	    mount("data", "mnt", NULL, MS_BIND, NULL) || mount("data", "fixed", NULL, MS_BIND, NULL) ||
	    mount(NULL, "fixed", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) || mount("tmpfs", "scratch", "tmpfs", 0, NULL) ||
	    (readonly && mount(NULL, folder, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL)) || chroot(folder))
		_exit(2);
}

static _Noreturn void live(const struct kind *kind, int channel)
{
	char byte;

	if (unshare(CLONE_NEWNS | kind->flags))
		_exit(1);
	if (kind->inside >= 0) {
		scoped_free char *map = text_format("%d %d 1", kind->inside, USER);
		if (setresgid(USER, USER, USER) || setresuid(USER, USER, USER) || prctl(PR_SET_DUMPABLE, 1) ||
		    unshare(CLONE_NEWUSER | CLONE_NEWNS))
			_exit(1);
		write_map("/proc/self/uid_map", map);
	} else {
		make_mounts(kind->readonly);
	}
	(void)!write(channel, "1", 1);
	(void)!read(channel, &byte, 1);
	_exit(0);
}

static pid_t begin(const struct kind *kind, int *channel)
{
	int ends[2];
	char byte;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
	pid_t pid = fork();
	if (!pid) {
		close(ends[0]);
		live(kind, ends[1]);
	}
	close(ends[1]);
	*channel = ends[0];
	CHECK(pid > 0 && read(ends[0], &byte, 1) == 1);
	return pid;
}

static void end(pid_t pid, int channel)
{
	close(channel);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

/* NULL: all that is asked for is there; else what the refusal has to say. */
static void check(pid_t pid, struct pyxis_request *request, unsigned unshare, const char *refusal)
{
	struct jail_error err = { .line = 0 };
	scoped_free char *home = text_format("HOME=/home");
	struct pyxis_container container = { .request = request, .owner = { 7, 0, USER, USER }, .member = pid, .unshare = unshare };

	text_list_add(&container.environment.list, home);
	int result = pyxis_join_check(&container, &err);
	CHECK(result == (refusal ? -1 : 0));
	if (refusal)
		CHECK_HAS(err.message, refusal);
	if (refusal && result)
		CHECK_HAS(err.message, "the container \"mine\" runs already, and ");
	variables_free(&container.environment);
}

static void asks(pid_t pid, enum pyxis_option option, const char *value, const char *refusal)
{
	scoped_request request = { 0 };
	struct jail_error err;

	CHECK(!pyxis_request_take(&request, PYXIS_NAME, "mine", &err) && !pyxis_request_take(&request, option, value, &err));
	check(pid, &request, request.unshare, refusal);
}

static void check_spaces(void)
{
	struct kind bare = { .inside = -1 }, net = { .flags = CLONE_NEWNET, .inside = -1 },
		    both = { .flags = CLONE_NEWIPC | CLONE_NEWUTS, .inside = -1 };
	int channel;
	pid_t pid = begin(&bare, &channel);

	asks(pid, PYXIS_WORKDIR, "/", NULL);
	asks(pid, PYXIS_UNSHARE, "net", "--container-unshare=net: ");
	asks(pid, PYXIS_UNSHARE, "ipc", "has no ipc namespace of its own: it shares the node's");
	asks(pid, PYXIS_UNSHARE, "uts", "--container-unshare=uts: ");
	end(pid, channel);
	pid = begin(&net, &channel);
	asks(pid, PYXIS_WORKDIR, "/", NULL);
	asks(pid, PYXIS_UNSHARE, "net", NULL);
	asks(pid, PYXIS_UNSHARE, "net,ipc", "--container-unshare=ipc: ");
	end(pid, channel);
	pid = begin(&both, &channel);
	asks(pid, PYXIS_UNSHARE, "uts,ipc", NULL);
	asks(pid, PYXIS_UNSHARE, "uts,net", "--container-unshare=net: ");
	end(pid, channel);
}

static void check_root(void)
{
	struct kind open = { .inside = -1 }, fixed = { .inside = -1, .readonly = true }, root = { .inside = 0 }, user = { .inside = USER };
	int channel;
	pid_t pid = begin(&open, &channel);

	asks(pid, PYXIS_READONLY, NULL, "--container-readonly: ");
	asks(pid, PYXIS_WRITABLE, NULL, NULL);
	end(pid, channel);
	pid = begin(&fixed, &channel);
	asks(pid, PYXIS_READONLY, NULL, NULL);
	asks(pid, PYXIS_WRITABLE, NULL, "its root is read-only");
	end(pid, channel);
	pid = begin(&root, &channel);
	asks(pid, PYXIS_REMAP_ROOT, NULL, NULL);
	asks(pid, PYXIS_NO_REMAP_ROOT, NULL, "its user is root in it");
	end(pid, channel);
	pid = begin(&user, &channel);
	asks(pid, PYXIS_REMAP_ROOT, NULL, "--container-remap-root: ");
	asks(pid, PYXIS_NO_REMAP_ROOT, NULL, NULL);
	/* The whole of the step's own root is its root: the home is where it was. */
	asks(pid, PYXIS_MOUNT_HOME, NULL, NULL);
	asks(pid, PYXIS_NO_MOUNT_HOME, NULL, "the home directory is in it");
	end(pid, channel);
}

static void mounts(pid_t pid, const char *format, const char *refusal)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	scoped_free char *value = text_format(format, folder);
#pragma GCC diagnostic pop

	asks(pid, PYXIS_MOUNTS, value, refusal);
}

static void check_mounts(void)
{
	struct kind kind = { .inside = -1 };
	int channel;
	pid_t pid = begin(&kind, &channel);

	mounts(pid, "%s/data:/mnt", NULL);
	mounts(pid, "%s/data:/link", NULL);
	mounts(pid, "%s/data:/fixed:ro", NULL);
	mounts(pid, "%s/data:/fixed", NULL);
	mounts(pid, "tmpfs:/scratch", NULL);
	mounts(pid, "umount:/home", NULL);
	mounts(pid, "%s/data:/mnt,tmpfs:/scratch", NULL);
	mounts(pid, "%s/data:/mnt:ro", "does not have this at /mnt, or not as it is asked for");
	mounts(pid, "%s/home:/mnt", "--container-mounts: ");
	mounts(pid, "%s/data:/nowhere", "does not have this at /nowhere");
	mounts(pid, "%s/nowhere:/mnt", "does not have this at /mnt");
	mounts(pid, "%s/data:/outside", "does not have this at /outside");
	mounts(pid, "tmpfs:/data", "does not have this at /data");
	mounts(pid, "%s/data:/mnt,tmpfs:/home", "does not have this at /home");
	asks(pid, PYXIS_NO_MOUNT_HOME, NULL, NULL);
	asks(pid, PYXIS_MOUNT_HOME, NULL, "the home directory is not in it");
	end(pid, channel);
	kind = (struct kind){ .inside = USER };
	pid = begin(&kind, &channel);
	asks(pid, PYXIS_MOUNTS, "umount:/home", "has something mounted at /home");
	end(pid, channel);
}

/* The task itself looks where it is, whatever was seen before. */
static void check_task(const struct kind *kind, unsigned unshare, const char *refusal)
{
	int channel, status;
	pid_t pid = begin(kind, &channel), child = fork();

	if (!child) {
		const struct pyxis_request request = { .workdir = (char *)(uintptr_t)"/" };
		struct variables environment = { { NULL, 0, 0 } };
		struct jail_error err = { .line = 0 };
		int result = pyxis_task_join(pid, pyxis_task_mounts(pid), unshare, &request, &environment, &err);
		_exit(refusal ? !(result && strstr(err.message, refusal)) : result != 0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
	end(pid, channel);
}

static bool may_make_containers(void)
{
	int status;
	pid_t pid = geteuid() ? -1 : fork();

	if (!pid)
		_exit(unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

int main(void)
{
	static const char *const folders[] = { "data", "home", "mnt", "fixed", "scratch" };
	char *const clean[] = { (char *)"/bin/rm", (char *)"-rf", folder, NULL };
	struct kind bare = { .inside = -1 }, net = { .flags = CLONE_NEWNET, .inside = -1 };

	if (!may_make_containers())
		return check_result("join_check");
	CHECK(mkdtemp(folder) && !chmod(folder, 0755) && !chdir(folder));
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		CHECK(!mkdir(folders[i], 0755));
	CHECK(!symlink("/mnt", "link") && !symlink("/proc/1/root/etc", "outside"));
	check_spaces();
	check_root();
	check_mounts();
	check_task(&bare, 0, NULL);
	check_task(&bare, PYXIS_NET, "--container-unshare=net: the container is in the net namespace of the step");
	check_task(&net, PYXIS_NET, NULL);
	check_task(&net, PYXIS_NET | PYXIS_UTS, "--container-unshare=uts");
	pid_t cleaner = fork();
	if (!cleaner)
		execv(clean[0], clean);
	CHECK(waitpid(cleaner, NULL, 0) == cleaner);
	return check_result("join_check");
}
