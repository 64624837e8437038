#define _GNU_SOURCE
#include "join.h"

#include <errno.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../spank_jail/core/scoped.h"
#include "../../spank_jail/core/sys.h"
#include "container.h"
#include "fake_chown.h"

static const struct { const char *name; int kind; } namespaces[] = {
	{ "user", CLONE_NEWUSER },     { "mnt", CLONE_NEWNS },   { "pid", CLONE_NEWPID }, { "net", CLONE_NEWNET },
	{ "ipc", CLONE_NEWIPC },       { "uts", CLONE_NEWUTS },  { "cgroup", CLONE_NEWCGROUP },
};

int join_differing(long pid)
{
	int kinds = 0;

	for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
		scoped_free char *own = text_format("/proc/self/ns/%s", namespaces[i].name);
		scoped_free char *theirs = text_format("/proc/%ld/ns/%s", pid, namespaces[i].name);
		struct stat a, b;
		if (!stat(own, &a) && !stat(theirs, &b) && a.st_ino != b.st_ino)
			kinds |= namespaces[i].kind;
	}
	return kinds;
}

int join_enter(int process, int kinds, long pid, struct jail_error *err)
{
	struct stat own, theirs;
	scoped_free char *path = text_format("/proc/%ld", pid);
	scoped_fd folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool known = folder >= 0 && !stat("/proc/self/ns/user", &own);

	if (sys_setns(process, kinds))
		return jail_fail(err, "setns", errno, "cannot join the namespaces of process %ld; is it a container of yours?", pid);
	/* Since `kinds` were looked up its user may have taken it to mounts of the user's own making, where root would run what lies
	 * there. That takes a user namespace, and from one no user's process comes back: one that is not in any was in none. */
	if (!(kinds & CLONE_NEWUSER) && (!known || fstatat(folder, "ns/user", &theirs, 0) || own.st_ino != theirs.st_ino))
		return jail_fail(err, NULL, 0, "process %ld has ended, or gone to another user namespace, while it was joined", pid);
	return 0;
}

int join_confine(int kinds, struct jail_error *err)
{
	const struct container container = { .uid = geteuid(), .gid = getegid(), .privileged = !(kinds & CLONE_NEWUSER) };

	if (!container.privileged && fake_chown(err))
		return -1;
	return container_drop(&container, err);
}
