/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a namespace as another uid when root has used up the number that the kernel allows to one uid. sys.c calls
 * it.
 *
 * The kernel counts a uid's namespaces over the whole machine (user.max_mnt_namespaces). Root inside a jail counts as
 * uid 0, and could use up all that slurmstepd, which is uid 0 as well, may make.
 */
#define _GNU_SOURCE
#include "unshare.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS)

/* Uids that are mapped in a container's user namespace, too, and are no system user's. */
#define FIRST_UID 1000
#define N_UIDS 59000
/* One of them may be a user's who has used up his own. */
#define TRIES 4

/* The calling thread's alone, past the C library: the others go on as root. */
static int set_effective_uid(uid_t uid)
{
	return (int)syscall(SYS_setresuid, -1, uid, -1);
}

/* Becoming another uid takes the effective capabilities away, not the permitted ones. */
static int unshare_as(uid_t uid, int flags)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct own[2], all[2];

	if (syscall(SYS_capget, &header, own) || set_effective_uid(uid))
		return -1;
	for (int i = 0; i < 2; i++) {
		all[i] = own[i];
		all[i].effective = own[i].permitted;
	}
	int result = syscall(SYS_capset, &header, all) ? -1 : (int)syscall(SYS_unshare, flags);
	int number = errno;
	if (set_effective_uid(0) || syscall(SYS_capset, &header, own))
		return -1;
	errno = number;
	return result;
}

/* A user namespace is its maker's: that stays root's. */
bool unshare_is_counted(int flags)
{
	return errno == ENOSPC && flags & NAMESPACES && !(flags & CLONE_NEWUSER) && !geteuid();
}

int unshare_as_another(int flags)
{
	uint32_t number;

	for (int i = 0; i < TRIES; i++) {
		if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
			break;
		if (!unshare_as(FIRST_UID + number % N_UIDS, flags))
			return 0;
		if (errno != ENOSPC)
			break;
	}
	errno = ENOSPC;
	return -1;
}
