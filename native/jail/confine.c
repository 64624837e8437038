/* SPDX-License-Identifier: Apache-2.0 */
/* Takes capabilities, keyrings and dangerous system calls from the calling thread, as the level of isolation says.
 * spank_jail/enter, spank_jail/pam and spank_jail/slurm call it. */
#define _GNU_SOURCE
#include "confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "native/seccomp/seccomp.h"
#include "native/base/sys.h"

#define BIT(capability) (UINT64_C(1) << (capability))

/* What apt, a package's scripts, su, sudo and MPI need. What is missing here is missing for a reason;
 * docs/jail-isolation.md has it for each. Securebits stay: uid 0 gains these on exec, as people expect. */
static const uint64_t allowed =
	BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | /* files of all users: dpkg */
	BIT(CAP_SETUID) | BIT(CAP_SETGID) |  /* su, sudo, apt's sandbox user _apt */
	BIT(CAP_KILL) |                      /* root ends what users run in the job */
	BIT(CAP_SETPCAP) |                   /* only takes away: setpriv, capsh, a runtime's own bounding set */
	BIT(CAP_SETFCAP) |                   /* setcap in maintainer scripts; bounded by this set on exec */
	BIT(CAP_SYS_CHROOT) |                /* sshd, debootstrap; leads nowhere: the root of the namespace is the jail */
	BIT(CAP_IPC_LOCK);                   /* MPI over RDMA pins memory; the job's memory limit still counts it */

/* Every kernel that has the mount API knows capabilities up to this one; newer ones know more. */
#define OLDEST_LAST_CAPABILITY CAP_CHECKPOINT_RESTORE

bool jail_confine_allows(unsigned capability)
{
	return capability < 64 && (allowed & BIT(capability));
}

/* An anonymous one: what a process of the jail adds to its keyring nobody else finds, and the node's
 * session keys (those of slurmd's or sshd's start) are not inherited. */
static int leave_keyring(struct jail_error *err)
{
	/* A kernel without keys has none to protect. */
	if (sys_keyctl(KEYCTL_JOIN_SESSION_KEYRING) < 0 && errno != ENOSYS)
		return jail_fail(err, "keyctl", errno, "cannot make a session keyring; %s", errno == EDQUOT
				 ? "root has too many, see /proc/key-users and kernel.keys.root_maxkeys"
				 : "is keyctl refused by a filter on this node?");
	return 0;
}

/* By number, up to the first that the kernel does not know: capabilities that are newer than this code
 * go, too. Dropping takes 0.7 us even of what is not there, and in a container most are not. */
static int cut_bounding_set(struct jail_error *err)
{
	for (unsigned capability = 0; capability < 64; capability++) {
		if (jail_confine_allows(capability))
			continue;
		int present = sys_prctl(PR_CAPBSET_READ, capability);
		if (!present || (present > 0 && !sys_prctl(PR_CAPBSET_DROP, capability)))
			continue;
		if (errno == EINVAL && capability > OLDEST_LAST_CAPABILITY)
			break;
		return jail_fail(err, "prctl", errno, "cannot take capability %u out of the bounding set%s", capability,
				 errno == EPERM ? "; CAP_SETPCAP is needed" : "");
	}
	return 0;
}

/* The kernel counts queued signals, and timers, by uid for the whole machine, and compares the count with the limit of who
 * gets one more. Root inside who may have as many as the node's daemons leaves these none: C libraries tell the threads of a
 * process of a new uid by such a signal, and slurmstepd tries for ever. Half is left to them. */
static int leave_signals(struct jail_error *err)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_SIGPENDING, &limit))
		return jail_fail(err, "getrlimit", errno, "cannot read how many signals may be pending");
	if (limit.rlim_max == RLIM_INFINITY)
		return 0;
	limit.rlim_max /= 2;
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_SIGPENDING, &limit))
		return jail_fail(err, "setrlimit", errno, "cannot limit how many signals may be pending");
	return 0;
}

static uint64_t joined(const uint32_t words[2])
{
	return words[0] | (uint64_t)words[1] << 32;
}

/* Clears inheritable, and with it the ambient set, which the kernel keeps within it. */
static int keep_capabilities(uint64_t kept, struct jail_error *err)
{
	uint32_t effective[2], permitted[2], inheritable[2];

	if (sys_capget(effective, permitted, inheritable))
		return jail_fail(err, "capget", errno, "cannot read this process's capabilities");
	if (!joined(inheritable) && !(joined(permitted) & ~kept))
		return 0;
	for (int i = 0; i < 2; i++) {
		effective[i] &= (uint32_t)(kept >> 32 * i);
		permitted[i] &= (uint32_t)(kept >> 32 * i);
		inheritable[i] = 0;
	}
	if (sys_capset(effective, permitted, inheritable))
		return jail_fail(err, "capset", errno, "cannot give up capabilities");
	return 0;
}

/* The kernel lets a process through /proc/PID/root of another that has no capability which is not effective
 * in the first, or by CAP_SYS_PTRACE. Whoever makes jails has CAP_SYS_ADMIN: without these two, the working
 * directory that a user names, which Slurm changes to as root for root, cannot be his. */
static int drop_ptrace_and_admin(struct jail_error *err)
{
	uint32_t effective[2], permitted[2], inheritable[2];

	if (sys_capget(effective, permitted, inheritable))
		return jail_fail(err, "capget", errno, "cannot read this process's capabilities");
	effective[0] &= ~(1U << CAP_SYS_ADMIN | 1U << CAP_SYS_PTRACE);
	if (sys_capset(effective, permitted, inheritable))
		return jail_fail(err, "capset", errno, "cannot put capabilities aside");
	return 0;
}

int jail_confine(enum jail_level level, struct jail_error *err)
{
	if (level < JAIL_LEVEL_CAPABILITIES)
		return 0;
	/* The filter comes late: it refuses keyctl, and needs CAP_SYS_ADMIN. */
	return leave_keyring(err) || leave_signals(err) || cut_bounding_set(err) || keep_capabilities(UINT64_MAX, err) ||
	       jail_seccomp_attach(err) || drop_ptrace_and_admin(err) ? -1 : 0;
}

/* The kernel lets one process look into another that has the same ids and no more capabilities: after this, root inside
 * into this one, which still is a fork of slurmstepd or sshd, with its memory, its descriptors and, as /proc/PID/exe, its
 * program. Who executes a program can be looked into again. */
static int hide(struct jail_error *err)
{
	return sys_prctl(PR_SET_DUMPABLE, 0) ? jail_fail(err, "prctl", errno, "cannot keep this process from being traced") : 0;
}

int jail_confine_final(enum jail_level level, struct jail_error *err)
{
	if (level < JAIL_LEVEL_CAPABILITIES)
		return 0;
	return hide(err) || keep_capabilities(allowed, err) ? -1 : 0;
}
