/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the user and mount namespace of a container that starts, and drops the capabilities of its processes.
 * enroot/container/root.c and launch.c, and join.c call it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "native/mount/namespace.h"
#include "native/base/scoped.h"
#include "native/base/sys.h"
#include "namespaces.h"
#include "refusal.h"

static int write_map(const char *path, const char *text, struct jail_error *err)
{
	scoped_fd fd = sys_open(path, O_WRONLY);

	if (fd < 0 || text_write(fd, text, strlen(text))) {
		jail_fail(err, fd < 0 ? "open" : "write", errno, "cannot map the container's ids; is /proc mounted read-only?");
		return jail_error_at(err, NULL, 0, path);
	}
	return 0;
}

int namespaces_make_user(unsigned uid, unsigned gid, struct jail_error *err)
{
	scoped_free char *uids = text_format("%u %u 1", uid, (unsigned)geteuid());
	scoped_free char *gids = text_format("%u %u 1", gid, (unsigned)getegid());

	if (sys_unshare(CLONE_NEWUSER))
		return refusal_explain("unshare", errno, "/proc", err);
	return write_map("/proc/self/uid_map", uids, err) || write_map("/proc/self/setgroups", "deny", err) ||
	       write_map("/proc/self/gid_map", gids, err) ? -1 : 0;
}

static int loopback_up(struct jail_error *err)
{
	scoped_fd fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
		return jail_fail(err, "ioctl", errno, "cannot bring up the loopback interface of the network namespace");
	return 0;
}

int namespaces_make_others(const struct settings *settings, struct jail_error *err)
{
	bool net = settings_true(settings, "ENROOT_UNSHARE_NET");
	int flags = (net ? CLONE_NEWNET : 0) | (settings_true(settings, "ENROOT_UNSHARE_IPC") ? CLONE_NEWIPC : 0) |
		    (settings_true(settings, "ENROOT_UNSHARE_UTS") ? CLONE_NEWUTS : 0);

	/* AppArmor on Ubuntu grants the user namespace and takes the capabilities in it. */
	if (jail_namespace_private(err))
		return err->number == EPERM || err->number == ENOSPC || err->number == EACCES
		       ? refusal_explain("unshare", err->number, "/proc", err) : -1;
	if (flags && sys_unshare(flags))
		return refusal_explain("unshare", errno, "/proc", err);
	return net ? loopback_up(err) : 0;
}

bool namespaces_keep_capabilities(void)
{
	uint32_t effective[2], permitted[2], inheritable[2];

	if (sys_capget(effective, permitted, inheritable) || sys_capset(permitted, permitted, permitted))
		return false;
	for (unsigned long cap = 0; cap < 64; cap++)
		if (permitted[cap / 32] & 1U << cap % 32)
			prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0UL, 0UL);
	return true;
}

int namespaces_drop_rights(unsigned uid, struct jail_error *err)
{
	static const uint32_t none[2] = { 0, 0 };

	if (sys_prctl(PR_SET_NO_NEW_PRIVS, 1))
		return jail_fail(err, "prctl", errno, "cannot set no_new_privs");
	if (uid == 0)
		return 0;
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0UL, 0UL, 0UL);
	if (sys_capset(none, none, none))
		return jail_fail(err, "capset", errno, "cannot drop the container's capabilities");
	return 0;
}
