/* SPDX-License-Identifier: Apache-2.0 */
/* The table of system calls that are refused in the jail, each with its reason. jail_seccomp_prepare (seccomp.c)
 * reads them.
 *
 * Three kinds: what reaches past the jail and is guarded by nothing else; what is guarded by a capability that root
 * inside lacks, but opens so much that one guard is too few; and parts of the kernel that bring exploits and no job
 * needs. EPERM, unless a program knows what to do without the call after another error: ENOSYS makes C libraries and
 * runtimes fall back.
 *
 * Not here on purpose: mount, umount2, pivot_root, setns, fsopen, fsmount, move_mount, open_tree, mount_setattr,
 * unshare of other namespaces (the container runtime lives in user namespaces, elsewhere they need CAP_SYS_ADMIN);
 * ptrace, process_vm_readv, process_vm_writev, pidfd_getfd (gdb, MPI and NCCL within a job; the kernel compares ids
 * and capabilities, and slurmd has more than anyone inside); mbind, move_pages, set_mempolicy, migrate_pages (NUMA);
 * name_to_handle_at (only tells); adjtimex, clock_adjtime (reading the clock's state is free, setting it takes
 * CAP_SYS_TIME); vhangup (CAP_SYS_TTY_CONFIG); seccomp, landlock_* (sandboxes within the jail).
 */
#define _GNU_SOURCE
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>

#include "seccomp.h"

/* Numbers of the kernel's interface, which the headers of some C library that we compile against lack. */
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef __NR_quotactl_fd
#define __NR_quotactl_fd 443
#endif
#ifndef F_SETDELEG
#define F_SETDELEG 1040
#endif
#ifndef AF_VSOCK
#define AF_VSOCK 40
#endif

#define CALL(name) #name, __NR_##name
#define ARGUMENT(n, is, value) { JAIL_ARGUMENT_##is, n, (uint32_t)(value) }

/* What setarch and gdb ask for: how uname answers, and no address randomization. What is left out weakens
 * the process itself (pages at 0, executable data) or emulates other systems. */
#define HARMLESS_PERSONALITIES (PER_LINUX32 | UNAME26 | ADDR_NO_RANDOMIZE)
#define ASK_PERSONALITY 0xffffffff

static const char kernel_code[] = "puts code into the kernel or replaces it";
static const char node_clock[] = "the clock is the node's";
static const char swapping[] = "swap space is the node's";
static const char keys[] = "keyrings belong to a uid, not to a jail: uid 0's are the node's";
static const char ring[] = "its calls pass by this filter, and it has brought a score of exploits";
static const char quota[] = "quotas are the volume's; the kernel takes a device, which the jail has none of";
static const char obsolete[] = "long without use";

const struct jail_syscall_rule jail_syscall_rules[] = {
	{ CALL(kexec_load), EPERM, kernel_code, {{ 0 }} },
	{ CALL(kexec_file_load), EPERM, kernel_code, {{ 0 }} },
	{ CALL(init_module), EPERM, kernel_code, {{ 0 }} },
	{ CALL(finit_module), EPERM, kernel_code, {{ 0 }} },
	{ CALL(delete_module), EPERM, kernel_code, {{ 0 }} },
	{ CALL(bpf), EPERM, kernel_code, {{ 0 }} },
	{ CALL(reboot), EPERM, "ends the node for everybody", {{ 0 }} },
	{ CALL(swapon), EPERM, swapping, {{ 0 }} },
	{ CALL(swapoff), EPERM, swapping, {{ 0 }} },
	{ CALL(acct), EPERM, "writes about all processes of the node into a file", {{ 0 }} },
	{ CALL(settimeofday), EPERM, node_clock, {{ 0 }} },
	{ CALL(clock_settime), EPERM, node_clock, {{ 0 }} },
	{ CALL(syslog), EPERM, "the kernel's log tells about the node and everybody on it", {{ 0 }} },
	{ CALL(perf_event_open), EPERM, "sees all of a processor, and has brought many exploits", {{ 0 }} },
	{ CALL(open_by_handle_at), EPERM, "opens any file of a volume by its number, outside the jail too", {{ 0 }} },
	{ CALL(fanotify_init), EPERM, "watches and holds up the file accesses of a whole volume", {{ 0 }} },
	{ CALL(quotactl), EPERM, quota, {{ 0 }} },
	{ CALL(quotactl_fd), EPERM, quota, {{ 0 }} },
	{ CALL(kcmp), EPERM, "compares what kernel pointers of two processes point to", {{ 0 }} },
	{ CALL(userfaultfd), EPERM, "stops the kernel in the middle of a copy, as exploits need it", {{ 0 }} },
	/* pam_keyinit, and with it su and login, goes on without keyrings after ENOSYS alone. */
	{ CALL(keyctl), ENOSYS, keys, {{ 0 }} },
	{ CALL(add_key), ENOSYS, keys, {{ 0 }} },
	{ CALL(request_key), ENOSYS, keys, {{ 0 }} },
	{ CALL(io_uring_setup), ENOSYS, ring, {{ 0 }} },
	{ CALL(io_uring_enter), ENOSYS, ring, {{ 0 }} },
	{ CALL(io_uring_register), ENOSYS, ring, {{ 0 }} },

	/* Namespaces: a cgroup namespace of one's own is what mounting cgroups in a user namespace takes. */
	{ CALL(clone), EPERM, "CLONE_NEWCGROUP: would let root inside mount cgroup file systems",
	  { ARGUMENT(0, HAS, CLONE_NEWCGROUP) } },
	{ CALL(unshare), EPERM, "CLONE_NEWCGROUP as with clone; CLONE_NEWTIME: no job needs it",
	  { ARGUMENT(0, HAS, CLONE_NEWCGROUP | CLONE_NEWTIME) } },
	{ CALL(clone3), ENOSYS, "its flags lie in memory, where a filter cannot look; C libraries use clone then",
	  {{ 0 }} },

	{ CALL(personality), EPERM, "other than PER_LINUX32, UNAME26 and ADDR_NO_RANDOMIZE: weakens what it runs",
	  { ARGUMENT(0, HAS, ~HARMLESS_PERSONALITIES), ARGUMENT(0, IS_NOT, ASK_PERSONALITY) } },
	{ CALL(ioctl), EPERM, "TIOCSTI: types into a terminal that the process outside reads (srun --pty, sshd)",
	  { ARGUMENT(1, IS, TIOCSTI) } },
	{ CALL(ioctl), EPERM, "TIOCLINUX: pastes into the console of the node", { ARGUMENT(1, IS, TIOCLINUX) } },
	{ CALL(ioctl), EPERM, "TIOCSETD: loads line disciplines of the kernel that have brought exploits",
	  { ARGUMENT(1, IS, TIOCSETD) } },
	{ CALL(socket), EAFNOSUPPORT, "AF_ALG: the kernel's cryptography; has brought exploits, OpenSSL needs none of it",
	  { ARGUMENT(0, IS, AF_ALG) } },
	{ CALL(socket), EAFNOSUPPORT, "AF_VSOCK: the hypervisor's services take whoever calls for the node",
	  { ARGUMENT(0, IS, AF_VSOCK) } },
	/* The error by which PAM, sshd, su and useradd know a kernel without auditing, and go on. */
	{ CALL(socket), EAFNOSUPPORT, "AF_NETLINK with NETLINK_AUDIT: the audit log is the node's, entries could be forged",
	  { ARGUMENT(0, IS, AF_NETLINK), ARGUMENT(2, IS, NETLINK_AUDIT) } },

	/* The error of file systems without leases, which programs that take them (Samba) know. */
	{ CALL(fcntl), EINVAL, "F_SETLEASE: who opens the file waits for 45 s, as a backup of the volume, for each file",
	  { ARGUMENT(1, IS, F_SETLEASE) } },
	{ CALL(fcntl), EINVAL, "F_SETDELEG: a lease by another name, of directories, too (Linux 6.19)",
	  { ARGUMENT(1, IS, F_SETDELEG) } },

#ifdef __NR_iopl
	{ CALL(iopl), EPERM, "access to the hardware's ports", {{ 0 }} },
#endif
#ifdef __NR_ioperm
	{ CALL(ioperm), EPERM, "access to the hardware's ports", {{ 0 }} },
#endif
#ifdef __NR_modify_ldt
	{ CALL(modify_ldt), ENOSYS, "segments of 16-bit programs; has brought exploits", {{ 0 }} },
#endif
#ifdef __NR_uselib
	{ CALL(uselib), ENOSYS, obsolete, {{ 0 }} },
#endif
#ifdef __NR_lookup_dcookie
	{ CALL(lookup_dcookie), ENOSYS, obsolete, {{ 0 }} },
#endif
#ifdef __NR_nfsservctl
	{ CALL(nfsservctl), ENOSYS, obsolete, {{ 0 }} },
#endif
};

const size_t jail_syscall_n_rules = sizeof(jail_syscall_rules) / sizeof(jail_syscall_rules[0]);
