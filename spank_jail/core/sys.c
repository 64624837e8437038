#define _GNU_SOURCE
#include "sys.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One number on every architecture, for C libraries older than the call. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#ifdef JAIL_FAULTS
static unsigned fault_nth, fault_calls;
static int fault_number;

void sys_fault_set(unsigned nth, int number)
{
	fault_nth = nth;
	fault_number = number;
	fault_calls = 0;
}

unsigned sys_fault_count(void)
{
	return fault_calls;
}

static bool fault(void)
{
	if (++fault_calls != fault_nth || !fault_nth)
		return false;
	errno = fault_number;
	return true;
}
#define CALL(...) (fault() ? -1 : (int)syscall(__VA_ARGS__))
#else
#define CALL(...) ((int)syscall(__VA_ARGS__))
#endif

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

int sys_unshare(int flags)
{
	return CALL(SYS_unshare, flags);
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
