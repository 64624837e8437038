/* SPDX-License-Identifier: Apache-2.0 */
/* System calls, each behind a function of its own.
 *
 * The oldest C library that we compile with (Ubuntu 22.04, glibc 2.35) has no functions for the mount API of Linux
 * 5.2-5.12. And here a test can have any of them fail (JAIL_FAULTS, never defined in what ships). Semantics and
 * return values are the kernel's: -1 and errno on failure.
 */
#ifndef JAIL_SYS_H
#define JAIL_SYS_H

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/vfs.h>

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
/* MNT_DETACH and MS_*: sys/mount.h, which has them, clashes with linux/mount.h before glibc 2.37. */
#define JAIL_MNT_DETACH 2

#define JAIL_MS_PRIVATE (1 << 18)
#define JAIL_MS_SLAVE (1 << 19)
#define JAIL_MS_SHARED (1 << 20)

int sys_open_tree(int dir, const char *path, unsigned flags);
int sys_move_mount(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int sys_fsopen(const char *type);
int sys_fsconfig(int fs, unsigned command, const char *key, const char *value);
int sys_fsmount(int fs, unsigned attributes);
int sys_mount_setattr(int dir, const char *path, unsigned flags, uint64_t set, uint64_t propagation);
/* The same with all of struct mount_attr: what is cleared, the times. */
int sys_mount_attributes(int dir, const char *path, unsigned flags, const struct mount_attr *attributes);
int sys_openat2(int dir, const char *path, uint64_t flags, uint64_t resolve);
/* Ids of the mounts below the caller's root that come after `after`; at most `n`. Returns how many. */
int sys_listmount(uint64_t after, uint64_t *ids, size_t n);
int sys_mkdirat(int dir, const char *name, mode_t mode);
int sys_mknodat(int dir, const char *name, mode_t mode, dev_t device);
int sys_symlinkat(const char *content, int dir, const char *name);
int sys_fchownat(int dir, const char *name, uid_t uid, gid_t gid);
int sys_unshare(int flags);
int sys_setns(int fd, int flags);
int sys_pivot_root(const char *new_root, const char *put_old);
int sys_umount2(const char *path, int flags);
int sys_fchdir(int fd);
int sys_chdir(const char *path);
int sys_chroot(const char *path);
int sys_open(const char *path, int flags);
int sys_access(const char *path);
int sys_fstat(int fd, struct stat *st);
int sys_fstatfs(int fd, struct statfs *st);
int sys_lstat(const char *path, struct stat *st);
ssize_t sys_pread(int fd, void *buffer, size_t size, off_t offset);
/* realpath(3): several calls, one to the seam. `real` holds PATH_MAX bytes. Returns 0 or -1. */
int sys_realpath(const char *path, char *real);

/* Effective user id of the calling thread only (the library's seteuid stops every thread of the
 * process to change all of them, and slurmstepd has some). */
int sys_thread_seteuid(uid_t uid);

/* Identity of the calling thread for file access only; both return the one before, and never fail. */
uid_t sys_thread_setfsuid(uid_t uid);
gid_t sys_thread_setfsgid(gid_t gid);

/* Supplementary groups of the calling thread only. */
int sys_thread_setgroups(size_t n, const gid_t *groups);

/* Capabilities, keys and the system call filter. Sets are two words, capabilities 0-31 and 32-63. */
int sys_prctl(int option, unsigned long argument);
int sys_capget(uint32_t effective[2], uint32_t permitted[2], uint32_t inheritable[2]);
int sys_capset(const uint32_t effective[2], const uint32_t permitted[2], const uint32_t inheritable[2]);
int sys_keyctl(int command);
int sys_seccomp(unsigned operation, unsigned flags, const void *argument);

/* dlopen(3), which is no system call but fails like one: NULL, and errno is ENOENT. */
void *sys_dlopen(const char *name);

#ifdef JAIL_FAULTS
/* Test seam: the n-th call from now (1 = the next) fails with `number`; 0 switches it off.
 * sys_fault_count() counts the calls since then. */
void sys_fault_set(unsigned nth, int number);
unsigned sys_fault_count(void);
/* The call that was made to fail since then, without "sys_"; "" when none was. */
const char *sys_fault_name(void);
#endif

#endif
