/* SPDX-License-Identifier: Apache-2.0 */
/* Makes system calls for which old C libraries have no functions. Tests can have any of them fail here (JAIL_FAULTS),
 * to see what the callers do then. Files of this folder, enroot/, other libraries in native/, pyxis/ and spank_jail/
 * call it. */
#define _GNU_SOURCE
#include "sys.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unshare.h"

/* One number on every architecture, for C libraries older than the call. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

/* Linux 6.8 */
#ifndef SYS_listmount
#define SYS_listmount 458
#endif
#define ALL_MOUNTS UINT64_MAX

#ifdef JAIL_FAULTS
static unsigned fault_nth, fault_calls;
static int fault_number;
static const char *fault_name = "";

void sys_fault_set(unsigned nth, int number)
{
	fault_nth = nth;
	fault_number = number;
	fault_calls = 0;
	fault_name = "";
}

unsigned sys_fault_count(void)
{
	return fault_calls;
}

const char *sys_fault_name(void)
{
	return fault_name;
}

static bool fault_here(const char *function)
{
	if (++fault_calls != fault_nth || !fault_nth)
		return false;
	fault_name = function + strlen("sys_");
	errno = fault_number;
	return true;
}
#define fault() fault_here(__func__)
#define fault_of(function) fault_here(function)
#else
#define fault() false
#define fault_of(function) false
#endif
#define CALL(...) (fault() ? -1 : (int)syscall(__VA_ARGS__))

int sys_open_tree(int dir, const char *path, unsigned flags)
{
	return CALL(SYS_open_tree, dir, path, flags | OPEN_TREE_CLOEXEC);
}

int sys_move_mount(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
	return CALL(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

int sys_fsopen(const char *type)
{
	return CALL(SYS_fsopen, type, FSOPEN_CLOEXEC);
}

int sys_fsconfig(int fs, unsigned command, const char *key, const char *value)
{
	return CALL(SYS_fsconfig, fs, command, key, value, 0);
}

int sys_fsmount(int fs, unsigned attributes)
{
	return CALL(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
}

int sys_mount_setattr(int dir, const char *path, unsigned flags, uint64_t set, uint64_t propagation)
{
	struct mount_attr attributes = { .attr_set = set, .propagation = propagation };

	return CALL(SYS_mount_setattr, dir, path, flags, &attributes, sizeof(attributes));
}

int sys_mount_attributes(int dir, const char *path, unsigned flags, const struct mount_attr *attributes)
{
	return fault_of("sys_mount_setattr") ? -1 : (int)syscall(SYS_mount_setattr, dir, path, flags, attributes, sizeof(*attributes));
}

int sys_listmount(uint64_t after, uint64_t *ids, size_t n)
{
	const struct { uint32_t size, spare; uint64_t mount, after; } request = { 24, 0, ALL_MOUNTS, after };

	return CALL(SYS_listmount, &request, ids, n, 0);
}

int sys_openat2(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = resolve };

	return CALL(SYS_openat2, dir, path, &how, sizeof(how));
}

int sys_mkdirat(int dir, const char *name, mode_t mode)
{
	return CALL(SYS_mkdirat, dir, name, mode);
}

int sys_mknodat(int dir, const char *name, mode_t mode, dev_t device)
{
	return CALL(SYS_mknodat, dir, name, mode, device);
}

int sys_symlinkat(const char *content, int dir, const char *name)
{
	return CALL(SYS_symlinkat, content, dir, name);
}

int sys_fchownat(int dir, const char *name, uid_t uid, gid_t gid)
{
	return CALL(SYS_fchownat, dir, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

int sys_unshare(int flags)
{
	if (fault())
		return -1;
	if (!syscall(SYS_unshare, flags))
		return 0;
	return unshare_is_counted(flags) ? unshare_as_another(flags) : -1;
}

int sys_setns(int fd, int flags)
{
	return CALL(SYS_setns, fd, flags);
}

int sys_pivot_root(const char *new_root, const char *put_old)
{
	return CALL(SYS_pivot_root, new_root, put_old);
}

int sys_umount2(const char *path, int flags)
{
	return CALL(SYS_umount2, path, flags);
}

int sys_fchdir(int fd)
{
	return CALL(SYS_fchdir, fd);
}

int sys_chdir(const char *path)
{
	return CALL(SYS_chdir, path);
}

int sys_chroot(const char *path)
{
	return CALL(SYS_chroot, path);
}

int sys_open(const char *path, int flags)
{
	return CALL(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
}

int sys_access(const char *path)
{
	return CALL(SYS_faccessat, AT_FDCWD, path, F_OK);
}

/* By the C library, whose struct stat is not the kernel's on every architecture. */
int sys_fstat(int fd, struct stat *st)
{
	return fault() ? -1 : fstat(fd, st);
}

int sys_fstatfs(int fd, struct statfs *st)
{
	return fault() ? -1 : fstatfs(fd, st);
}

int sys_lstat(const char *path, struct stat *st)
{
	return fault() ? -1 : lstat(path, st);
}

ssize_t sys_pread(int fd, void *buffer, size_t size, off_t offset)
{
	return fault() ? -1 : pread(fd, buffer, size, offset);
}

int sys_realpath(const char *path, char *real)
{
	return fault() || !realpath(path, real) ? -1 : 0;
}

int sys_thread_seteuid(uid_t uid)
{
	return CALL(SYS_setresuid, (uid_t)-1, uid, (uid_t)-1);
}

uid_t sys_thread_setfsuid(uid_t uid)
{
	return (uid_t)syscall(SYS_setfsuid, uid);
}

gid_t sys_thread_setfsgid(gid_t gid)
{
	return (gid_t)syscall(SYS_setfsgid, gid);
}

int sys_thread_setgroups(size_t n, const gid_t *groups)
{
	return CALL(SYS_setgroups, n, groups);
}

int sys_prctl(int option, unsigned long argument)
{
	return CALL(SYS_prctl, option, argument, 0UL, 0UL, 0UL);
}

static struct __user_cap_header_struct own_capabilities(void)
{
	return (struct __user_cap_header_struct){ .version = _LINUX_CAPABILITY_VERSION_3, .pid = 0 };
}

int sys_capget(uint32_t effective[2], uint32_t permitted[2], uint32_t inheritable[2])
{
	struct __user_cap_header_struct header = own_capabilities();
	struct __user_cap_data_struct data[2];
	int result = CALL(SYS_capget, &header, data);

	for (int i = 0; !result && i < 2; i++) {
		effective[i] = data[i].effective;
		permitted[i] = data[i].permitted;
		inheritable[i] = data[i].inheritable;
	}
	return result;
}

int sys_capset(const uint32_t effective[2], const uint32_t permitted[2], const uint32_t inheritable[2])
{
	struct __user_cap_header_struct header = own_capabilities();
	const struct __user_cap_data_struct data[2] = {
		{ effective[0], permitted[0], inheritable[0] },
		{ effective[1], permitted[1], inheritable[1] },
	};

	return CALL(SYS_capset, &header, data);
}

int sys_keyctl(int command)
{
	return CALL(SYS_keyctl, command, NULL, 0, 0, 0);
}

int sys_seccomp(unsigned operation, unsigned flags, const void *argument)
{
	return CALL(SYS_seccomp, operation, flags, argument);
}

void *sys_dlopen(const char *name)
{
	if (fault())
		return NULL;
	void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		errno = ENOENT;
	return handle;
}
